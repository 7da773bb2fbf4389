#include "server/api/json_shape.h"

#include <algorithm>
#include <array>
#include <bitset>

namespace millrace::api {
namespace {

constexpr int kMaxDepth = 512;  // of what is kept per level; Limits::max_json_depth is below it
// A byte of a string takes at most this many in its escaped form, \u00XX.
constexpr size_t kMaxEscapeFactor = 6;
constexpr size_t kShownBytes = 64;  // of a field's name in an error

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
        members_[depth_] = 0;
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
      return;
    }
    if (depth_ == 1) begin_field(string);
    count_member();
  }

  void begin_field(std::string_view name) {
    name_ = name;
    elements_ = 0;
    field_ = nullptr;
    for (const ShapeLimit& f : fields_) {
      if (f.field == name) field_ = &f;
    }
  }

  // `bytes` are those of the escaped form: a lower bound for what the string takes once read.
  void check_string(size_t bytes) {
    if (!field_ || field_->max_string_bytes == 0) return;
    if (bytes / kMaxEscapeFactor <= field_->max_string_bytes) return;
    refuse("a string has more than " + std::to_string(field_->max_string_bytes) + " bytes.");
  }

  void count_member() {
    if (depth_ == 2 && field_ && field_->max_elements > 0) return;  // has a limit of its own
    if (++members_[depth_] <= limits_.max_json_members) return;
    refuse("an object has more than " + std::to_string(limits_.max_json_members) + " members.");
  }

  // Counts are never reset, so a field that is given again does not get another allowance.
  void count_value(bool number) {
    if (depth_ == 0) return;
    const bool apart = field_ && field_->max_values > 0;
    const int64_t max_values = apart ? field_->max_values : limits_.max_json_values;
    if (++(apart ? values_apart_ : values_) > max_values) {
      return refuse("there are more than " + std::to_string(max_values) + " JSON values.");
    }
    if (depth_ != 2 || !field_ || field_->max_elements == 0) return;
    if (number && field_->numbers_are_free) return;
    if (++elements_ > field_->max_elements) {
      refuse("at most " + std::to_string(field_->max_elements) + " elements are allowed.");
    }
  }

  void refuse(const std::string& message) {
    const std::string param(name_.substr(0, kShownBytes));
    error_ = invalid_field(param, (param.empty() ? "the JSON body" : param) + ": " + message);
  }

  std::optional<Error> too_deep(int max_depth) const {
    return invalid_field(
        std::string(name_.substr(0, kShownBytes)),
        "the JSON body is nested deeper than " + std::to_string(max_depth) + " levels.");
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
  int64_t elements_ = 0, values_ = 0, values_apart_ = 0;
  std::array<int64_t, kMaxDepth> members_{};  // so far, of the open object of each level
  std::optional<Error> error_;
};

}  // namespace

std::optional<Error> check_json_shape(std::string_view text, const Limits& limits,
                                      std::span<const ShapeLimit> fields) {
  return Scan(text, limits, fields).run();
}

}  // namespace millrace::api
