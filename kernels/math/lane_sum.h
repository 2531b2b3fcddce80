// Sums in double in one fixed order: eight interleaved partial sums, then a tree. The order is part of the code and not
// of the compiler's choices, so a sum has the same bits wherever it is inlined, at any alignment and any vector width;
// eight independent sums are also what the vector units need to run at full speed.
#pragma once

#include <cstdint>

namespace longhaul::math {

// The sum of term(i) for i in [0, n).
template <class Term>
[[nodiscard, gnu::always_inline]] inline double lane_sum(int64_t n, Term term) {
  constexpr int64_t kLanes = 8;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(term(i + lane));
    }
  }
  for (int64_t lane = 0; i + lane < n; ++lane) {
    lanes[lane] += static_cast<double>(term(i + lane));
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace longhaul::math
