// Line plots as SVG elements for an HTML page. Pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace millrace::bench {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // ascending x
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;
  double y_max = 0.0;  // 0: as the data needs
};

// An <svg> element; a series has the colour plot_color() of its index. Empty if there is no point.
std::string plot_svg(const Plot& plot, const std::vector<Series>& series);
std::string plot_color(size_t index);

std::string escape_html(std::string_view text);

// Round positions (1, 2 or 5 times a power of ten) from `low` to `high`.
std::vector<double> axis_ticks(double low, double high, bool log);

}  // namespace millrace::bench
