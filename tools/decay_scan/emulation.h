// Kimi Delta Attention, forward and backward, as a kernel on tensor cores computes it: chunk by chunk, every operand of a
// matrix product rounded to 16 bits, sums, states, decay and the triangular solve in float. Diagonal tiles of any size are
// dense products of two factors around a causal anchor, which is what the scan is about.
#pragma once

#include <cstdint>

#include "tools/decay_scan/problem.h"

namespace longhaul::decay {

inline constexpr int64_t kEmulatedChunk = 64;

enum class ExponentRange : uint8_t {
  Limited,    // of the precision and of float
  Unlimited,  // the same roundings, but nothing overflows or underflows short of double's range: what rounding alone costs
};

// A chunk is 64 rows, or one tile where that is larger; `tile` must divide it.
[[nodiscard]] Outputs emulated_outputs(const ScanProblem& problem, int64_t tile, Precision precision,
                                       ExponentRange range = ExponentRange::Limited);

}  // namespace longhaul::decay
