#include "server/bench/load_plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace millrace::bench {
namespace {

constexpr double kWidth = 560, kHeight = 300;
constexpr double kLeft = 64, kRight = 12, kTop = 34, kBottom = 46;
constexpr int kTicks = 6;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

// Maps values to pixels.
struct Axis {
  double low, high, from, to;
  bool log = false;

  double at(double value) const {
    const double share =
        log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return from + (to - from) * std::clamp(share, 0.0, 1.0);
  }
};

std::string text_at(double x, double y, const char* anchor, std::string_view text) {
  return "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" text-anchor=\"" + anchor +
         "\">" + escape_html(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2) {
  return "<line x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) + "\" x2=\"" +
         coordinate(x2) + "\" y2=\"" + coordinate(y2) + "\"/>\n";
}

std::string frame(const Plot& plot, const Axis& x, const Axis& y) {
  std::string out = text_at(kLeft, 18, "start", plot.title);
  out += text_at((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", plot.x_label);
  out += text_at(kLeft - 6, 18, "end", plot.y_label);
  for (const double tick : axis_ticks(x.low, x.high, x.log)) {
    out += line(x.at(tick), y.from, x.at(tick), y.to);
    out += text_at(x.at(tick), kHeight - kBottom + 16, "middle", number(tick));
  }
  for (const double tick : axis_ticks(y.low, y.high, false)) {
    out += line(x.from, y.at(tick), x.to, y.at(tick));
    out += text_at(kLeft - 6, y.at(tick) + 4, "end", number(tick));
  }
  return out;
}

}  // namespace

std::string plot_color(size_t index) {
  constexpr std::array<const char*, 6> kColors = {"#2b6cb0", "#c05621", "#2f855a",
                                                  "#b83280", "#6b46c1", "#718096"};
  return kColors[index % kColors.size()];
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::vector<double> axis_ticks(double low, double high, bool log) {
  std::vector<double> out;
  if (!(high > low)) return out;
  if (log) {
    const bool wide = std::log10(high / low) > 3.0;
    for (double decade = std::pow(10.0, std::floor(std::log10(low))); decade <= high; decade *= 10)
      for (const double factor : {1.0, 2.0, 5.0})
        if (decade * factor >= low && decade * factor <= high && (factor == 1.0 || !wide))
          out.push_back(decade * factor);
    return out;
  }
  const double rough = (high - low) / kTicks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power * 10;
  for (const double factor : {5.0, 2.0, 1.0})
    if (power * factor >= rough) step = power * factor;
  for (double i = std::ceil(low / step); i * step <= high * (1 + 1e-9); ++i)
    out.push_back(i * step);
  return out;
}

std::string plot_svg(const Plot& plot, const std::vector<Series>& series) {
  double low = plot.log_x ? HUGE_VAL : 0.0, high = 0.0, top = plot.y_max;
  for (const Series& s : series) {
    for (const auto& [x, y] : s.points) {
      if (x > 0.0) low = std::min(low, x);
      high = std::max(high, x);
      if (plot.y_max == 0.0) top = std::max(top, y);
    }
  }
  if (!std::isfinite(low) || !(high > 0.0)) return {};
  if (high <= low) high = low + std::max(low, 1.0);
  const Axis x{low, high, kLeft, kWidth - kRight, plot.log_x};
  const Axis y{0.0, top > 0.0 ? top : 1.0, kHeight - kBottom, kTop};
  std::string out = "<svg viewBox=\"0 0 " + number(kWidth) + " " + number(kHeight) + "\">\n";
  out += frame(plot, x, y);
  for (size_t i = 0; i < series.size(); ++i) {
    out += "<polyline stroke=\"" + plot_color(i) + "\" points=\"";
    for (const auto& [px, py] : series[i].points)
      out += coordinate(x.at(std::max(px, low))) + "," + coordinate(y.at(py)) + " ";
    out += "\"><title>" + escape_html(series[i].name) + "</title></polyline>\n";
  }
  return out + "</svg>\n";
}

}  // namespace millrace::bench
