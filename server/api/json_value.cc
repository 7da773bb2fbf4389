#include "server/api/json_value.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace millrace::api {
namespace {
using Json = nlohmann::ordered_json;
constexpr size_t kShownBytes = 80;
}  // namespace

Result<Json> parse_json(std::string_view text) {
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& error) {
    return invalid_field("", "the text is not valid JSON: it breaks off or is ill-formed at byte " +
                                 std::to_string(error.byte) + ".");
  } catch (const Json::exception&) {
    return invalid_field("", "the JSON text has a number that is out of range.");
  }
}

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string shown(const Json& value) {
  if (value.is_structured() && value.size() > 4) return value.is_array() ? "[...]" : "{...}";
  if (value.is_string() && value.get_ref<const std::string&>().size() > kShownBytes) {
    return dump(Json(value.get_ref<const std::string&>().substr(0, kShownBytes) + "..."));
  }
  std::string text = dump(value);
  if (text.size() <= kShownBytes) return text;
  return value.is_array() ? "[...]" : "{...}";
}

const Json* find_member(const Json& object, std::string_view name) {
  for (auto it = object.begin(); it != object.end(); ++it) {
    if (it.key() == name) return it->is_null() ? nullptr : &*it;
  }
  return nullptr;
}

std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double skips integers
  if (!(std::fabs(number) <= kExact) || number != std::trunc(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

Error wrong_type(std::string_view param, const Json& value, std::string_view legal) {
  const std::string name(param);
  Error error =
      invalid_field(name, name + ": " + shown(value) + " is not " + std::string(legal) + ".");
  error.code = "invalid_type";
  return error;
}

Error out_of_range(std::string_view param, const Json& value, std::string_view legal) {
  const std::string name(param);
  return invalid_field(
      name, name + ": " + shown(value) + " is not allowed; it must be " + std::string(legal) + ".");
}

}  // namespace millrace::api
