// Keys that one block of the counting sort ranks.
#pragma once

#include <cstdint>

namespace longhaul::cuda {

inline constexpr int64_t kSortBlock = 1024;

}  // namespace longhaul::cuda
