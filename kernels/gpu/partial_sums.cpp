// See partial_sums.h: the part that planning needs, also in builds without CUDA.
#include "kernels/gpu/partial_sums.h"

namespace longhaul::cuda {

TensorView take_partials(Arena& scratch, std::string_view name, int64_t rows, int64_t columns) {
  return take(scratch, name, DType::F32, {partial_blocks(rows), columns});
}

}  // namespace longhaul::cuda
