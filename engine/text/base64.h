// Base64 (RFC 4648) as vocabulary files use it. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// Empty if `text` has a foreign character or an impossible length.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace millrace
