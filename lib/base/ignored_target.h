// The target of a position where there is nothing to predict: counts for no loss. The value is PyTorch's convention.
#pragma once

#include <cstdint>

namespace longhaul {

inline constexpr int32_t kIgnoredTarget = -100;

}  // namespace longhaul
