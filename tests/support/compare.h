// Comparison of tensors in tests: largest absolute difference, relative L2 norm, first bad index, NaN positions.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace longhaul::testing {

// All elements of a CPU view of any float or integer type, row-major, as double.
[[nodiscard]] std::vector<double> to_doubles(const TensorView& view);

struct Difference {
  double max_abs = 0;
  double relative_l2 = 0;  // |a - b| / max(|b|, tiny)
  int64_t worst_index = -1;
  bool same_nans = true;
  std::string text;  // one line with all of it

  // NaN and infinity must sit at the same places.
  [[nodiscard]] bool within(double relative) const { return same_nans && relative_l2 <= relative; }
};

[[nodiscard]] Difference difference(const TensorView& got, const TensorView& wanted);
[[nodiscard]] bool bitwise_equal(const TensorView& a, const TensorView& b);

}  // namespace longhaul::testing
