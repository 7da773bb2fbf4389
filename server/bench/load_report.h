// Results that were saved, side by side: as a table of text, and as one HTML page that loads
// nothing from anywhere, with plots drawn in it. Pure functions of the JSON that summary_json()
// makes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace millrace::bench {

struct SavedResult {
  std::string name;  // its label, or the name of its file
  nlohmann::ordered_json json;
};

// The error says what makes a file no result.
StatusOr<SavedResult> read_result(const std::string& path);

// One row for each figure, one column for each result; from the second on with its ratio to the
// first.
std::string comparison_text(const std::vector<SavedResult>& results);

std::string report_html(const std::vector<SavedResult>& results);

}  // namespace millrace::bench
