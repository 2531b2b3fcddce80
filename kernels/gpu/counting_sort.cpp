// See counting_sort.h: the part that planning needs, also in builds without CUDA.
#include "kernels/gpu/counting_sort.h"

#include "kernels/gpu/sort_block.h"

namespace longhaul::cuda {

TensorView take_sort_counts(Arena& scratch, int64_t keys, int64_t buckets) {
  return take(scratch, "counting_sort.counts", DType::I32, {(keys + kSortBlock - 1) / kSortBlock, buckets});
}

}  // namespace longhaul::cuda
