#include "server/api/json_shape.h"

#include <algorithm>
#include <bitset>

namespace millrace::api {
namespace {

constexpr int kMaxDepth = 512;  // of the bit per level; Limits::max_json_depth is below it

class Scan {
 public:
  Scan(std::string_view text, const Limits& limits, std::span<const ShapeLimit> fields)
      : text_(text), limits_(limits), fields_(fields) {}

  std::optional<Error> run() {
    const int max_depth = std::clamp(limits_.max_json_depth, 1, kMaxDepth - 1);
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        take_string();
      } else if (c == '{' || c == '[') {
        count_value(/*number=*/false);
        if (++depth_ > max_depth) return too_deep(max_depth);
        in_object_[depth_] = c == '{';
        expect_key_ = c == '{';
        ++at_;
      } else if (c == '}' || c == ']') {
        depth_ = std::max(0, depth_ - 1);
        expect_key_ = false;
        ++at_;
      } else if (c == ',' || c == ':') {
        expect_key_ = c == ',' && in_object_[depth_];
        ++at_;
      } else if (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
        ++at_;
      } else {
        count_value(/*number=*/c == '-' || (c >= '0' && c <= '9'));
        const size_t end = text_.find_first_of(",:]}[{\" \n\r\t", at_);
        at_ = std::min(end, text_.size());
      }
      if (error_) return std::move(error_);
    }
    return std::nullopt;
  }

 private:
  void take_string() {
    const size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_, text_.size());
    const std::string_view string = text_.substr(begin, at_ - begin);
    ++at_;
    if (!expect_key_) {
      check_string(string.size());
      count_value(/*number=*/false);
    } else if (depth_ == 1) {
      begin_field(string);
    }
  }

  void begin_field(std::string_view name) {
    name_ = name;
    elements_ = values_ = 0;
    field_ = nullptr;
    for (const ShapeLimit& f : fields_) {
      if (f.field == name) field_ = &f;
    }
  }

  void check_string(size_t bytes) {
    if (!field_ || field_->max_string_bytes == 0 || bytes <= field_->max_string_bytes) return;
    refuse("a string of " + std::to_string(bytes) + " bytes is too long; at most " +
           std::to_string(field_->max_string_bytes) + " are allowed.");
  }

  void count_value(bool number) {
    if (depth_ < 2) return;
    const int64_t max_values =
        field_ && field_->max_values > 0 ? field_->max_values : limits_.max_json_values;
    if (++values_ > max_values) {
      return refuse("there are more than " + std::to_string(max_values) + " values in it.");
    }
    if (depth_ != 2 || !field_ || field_->max_elements == 0) return;
    if (number && field_->numbers_are_free) return;
    if (++elements_ > field_->max_elements) {
      refuse("at most " + std::to_string(field_->max_elements) + " elements are allowed.");
    }
  }

  void refuse(std::string message) {
    const std::string param(name_.substr(0, 64));
    error_ = invalid_field(param, param + ": " + std::move(message));
  }

  std::optional<Error> too_deep(int max_depth) const {
    return invalid_field(depth_ > 1 ? std::string(name_.substr(0, 64)) : std::string(),
                         "the JSON body is nested deeper than " + std::to_string(max_depth) +
                             " levels.");
  }

  std::string_view text_;
  const Limits& limits_;
  std::span<const ShapeLimit> fields_;
  size_t at_ = 0;
  int depth_ = 0;
  bool expect_key_ = false;
  std::bitset<kMaxDepth> in_object_;
  std::string_view name_;
  const ShapeLimit* field_ = nullptr;
  int64_t elements_ = 0, values_ = 0;
  std::optional<Error> error_;
};

}  // namespace

std::optional<Error> check_json_shape(std::string_view text, const Limits& limits,
                                      std::span<const ShapeLimit> fields) {
  return Scan(text, limits, fields).run();
}

}  // namespace millrace::api
