// The judged side of tests/judges/template_judge.py: JSON lines in, JSON lines out.
//   {"template": ..., "context": {...}, "now": epoch seconds (optional)}
//   -> {"text": ..., "user_ranges": [[begin, end], ...]} or {"error": ...}
// With the argument --time N every line is rendered N times and the mean is added as "us".
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/text/jinja_render.h"

namespace {

using Json = nlohmann::ordered_json;
using namespace millrace;

std::map<std::string, std::unique_ptr<jinja::Template>> compiled;

StatusOr<const jinja::Template*> compile(const std::string& source) {
  auto it = compiled.find(source);
  if (it == compiled.end()) {
    MR_ASSIGN_OR_RETURN(auto tree, jinja::compile_template(source));
    it = compiled.emplace(source, std::move(tree)).first;
  }
  return it->second.get();
}

Json answer(const Json& request, int repeat) {
  const auto tree = compile(request.at("template").get<std::string>());
  if (!tree.ok()) return {{"error", status_message(tree.status())}};
  std::tm now{};
  const std::time_t seconds = request.value("now", std::time_t{0});
  gmtime_r(&seconds, &now);
  const auto begin = std::chrono::steady_clock::now();
  auto rendered = jinja::render_template(**tree, request.at("context"), {}, &now);
  for (int i = 1; i < repeat; ++i) {
    rendered = jinja::render_template(**tree, request.at("context"), {}, &now);
  }
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  if (!rendered.ok()) return {{"error", status_message(rendered.status())}};
  Json ranges = Json::array();
  for (const ByteRange& range : rendered->user_ranges) ranges.push_back({range.begin, range.end});
  Json result = {{"text", rendered->text}, {"user_ranges", ranges}};
  if (repeat > 1) result["us"] = taken.count() / repeat;
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const bool timed = argc == 3 && std::string_view(argv[1]) == "--time";
  const int repeat = timed ? std::atoi(argv[2]) : 1;
  std::string line;
  while (std::getline(std::cin, line)) {
    const Json request = Json::parse(line, nullptr, false);
    const bool good =
        request.is_object() && request.contains("template") && request.contains("context");
    const Json result = good ? answer(request, repeat) : Json{{"error", "not a request"}};
    std::cout << result.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
  return 0;
}
