// The two generating routes.
#pragma once

#include <cstdint>

namespace millrace::api {

enum class Route : uint8_t { chat, completions };

}  // namespace millrace::api
