// Token and the ids that cross module borders.
#pragma once

#include <cstdint>

namespace millrace {

using Token = int32_t;

// Ours, unique for the life of the process, never chosen by a client and never made from a clock.
using RequestId = uint64_t;

}  // namespace millrace
