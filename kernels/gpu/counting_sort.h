// A stable counting sort on the GPU: where each key goes, and where each bucket begins. Counts are integers and ranks follow
// the order of keys, so the result is the same every time.
#pragma once

#include <cstdint>

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul::cuda {

inline constexpr int64_t kMaxBuckets = 8192;

// i32 scratch for `keys` keys and `buckets` buckets.
[[nodiscard]] TensorView take_sort_counts(Arena& scratch, int64_t keys, int64_t buckets);

struct CountingSort {
  const int32_t* keys = nullptr;  // [n]
  int64_t n = 0;
  int64_t buckets = 0;  // at most kMaxBuckets
  // A key's bucket is (key >> shift) & mask, which must be below `buckets`; a key elsewhere gets no place.
  int32_t shift = 0, mask = 0x7fffffff;
  TensorView counts;            // from take_sort_counts
  int64_t* offsets = nullptr;   // [buckets + 1]
  int64_t* places = nullptr;    // [n]: key i comes to places[i]
};
void counting_sort(ExecContext& ctx, const CountingSort& op);

}  // namespace longhaul::cuda
