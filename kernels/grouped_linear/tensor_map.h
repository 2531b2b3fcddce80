// Descriptions of bf16 matrices for Hopper's copy engine, which copies boxes of them into 128-byte-swizzled shared memory and
// fills in zeros where they end. The driver makes them; its function is looked up at run time, so that no program needs the
// driver's library to start.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace longhaul::cuda {

struct MatrixBoxes {
  const __nv_bfloat16* data;  // [matrices, rows, columns], aligned to 16 bytes
  int64_t columns, rows;
  int64_t row_stride;         // elements, a multiple of 8
  int box_columns, box_rows;  // of a copy: 64 columns at most, 256 rows at most
  int64_t matrices = 1;
  int64_t matrix_stride = 0;  // like row_stride
};

// Is there a driver that makes them?
[[nodiscard]] bool has_tensor_maps();
// A map of three dimensions for several matrices, of two for one. DeviceError when the driver refuses.
[[nodiscard]] CUtensorMap make_tensor_map(const MatrixBoxes& boxes);
[[nodiscard]] CUtensorMap make_tensor_maps(const MatrixBoxes& boxes);

}  // namespace longhaul::cuda
