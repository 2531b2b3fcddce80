// Timing of a repeatable piece of work, and what the machine can do at best.
#pragma once

#include <cstdint>
#include <functional>

#include "tensor/dtype.h"

namespace longhaul::bench {

struct Timing {
  double median_seconds = 0;
  double best_seconds = 0;
  int64_t repeats = 0;  // measured ones
};

// Runs `work` once to warm up, then for about `seconds` and at least three times; once where a single run takes longer than
// that. Processor time of this thread.
[[nodiscard]] Timing measure(const std::function<void()>& work, double seconds);

// Of one thread, as the ranks of the CPU backend compute.
struct Ceiling {
  double flops = 0;  // a second, of a large matrix product (BLAS)
  double bytes = 0;  // a second, read and written by a copy of more than fits into caches
};
[[nodiscard]] Ceiling measure_ceiling(DType dtype, double seconds);

// What work of this size needs at least on a machine of this ceiling.
struct Bound {
  double seconds = 0;
  bool is_compute = false;  // rather than memory
};
[[nodiscard]] Bound bound_of(double flops, double bytes, const Ceiling& ceiling);

}  // namespace longhaul::bench
