// See tensor_map.h.
#include "kernels/grouped_linear/tensor_map.h"

#include <cuda_runtime_api.h>

#include "base/cast.h"
#include "base/error.h"

namespace longhaul::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
#endif
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
}

Encode encode() {
  static const Encode kFunction = find_encode();
  return kFunction;
}

CUtensorMap make(const MatrixBoxes& boxes, cuuint32_t rank) {
  constexpr cuuint64_t kElement = sizeof(__nv_bfloat16);
  const cuuint64_t sizes[3] = {narrow<cuuint64_t>(boxes.columns), narrow<cuuint64_t>(boxes.rows), narrow<cuuint64_t>(boxes.matrices)};
  const cuuint64_t strides[2] = {narrow<cuuint64_t>(boxes.row_stride) * kElement, narrow<cuuint64_t>(boxes.matrix_stride) * kElement};
  const cuuint32_t box[3] = {narrow<cuuint32_t>(boxes.box_columns), narrow<cuuint32_t>(boxes.box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, const_cast<__nv_bfloat16*>(boxes.data), sizes, strides,
                                   box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw DeviceError("grouped_linear: the driver made no tensor map (error {}) of {} x {} x {} elements at {} with strides {} and {}, "
                      "boxes of {} x {}; addresses and strides must be multiples of 16 bytes",
                      static_cast<int>(result), boxes.matrices, boxes.rows, boxes.columns, static_cast<const void*>(boxes.data),
                      boxes.matrix_stride, boxes.row_stride, boxes.box_rows, boxes.box_columns);
  }
  return map;
}

}  // namespace

bool has_tensor_maps() { return encode() != nullptr; }
CUtensorMap make_tensor_map(const MatrixBoxes& boxes) { return make(boxes, 2); }
CUtensorMap make_tensor_maps(const MatrixBoxes& boxes) { return make(boxes, 3); }

}  // namespace longhaul::cuda
