// The products of grouped_linear on Hopper's tensor cores, for bf16. They are chosen where the chip has compute capability 9.0,
// the build has code for sm_90a, all rows are aligned to 16 bytes, and sizes fit.
#pragma once

#include <initializer_list>

#include "device/exec_context.h"
#include "kernels/linear/linear.h"
#include "tensor/tensor_view.h"

namespace longhaul::cuda {

// Can the kernels below work on these tensors? `rows` of them are all of x, dy, y, dx.
[[nodiscard]] bool fits_warpgroup(ExecContext& ctx, int64_t rows, int64_t experts, std::initializer_list<const TensorView*> views);

enum class WeightUse : uint8_t { Forward, Backward };  // y = x W^T, or dx = dy W

struct RowsWarpgroup {
  TensorView x;        // [rows, in]; backward: dy [rows, out]
  TensorView weight;   // [experts, out, in]
  TensorView offsets;  // i64 [experts + 1]
  TensorView y;        // [rows, out]; backward: dx [rows, in]
  WeightUse use;
  Accumulate accumulate;  // into y
};
void rows_warpgroup(ExecContext& ctx, const char* op, const RowsWarpgroup& p);

struct WeightWarpgroup {
  TensorView dy;       // [rows, out]
  TensorView x;        // [rows, in]
  TensorView offsets;  // i64 [experts + 1]
  TensorView dweight;  // f32 [experts, out, in], accumulated
};
void weight_warpgroup(ExecContext& ctx, const char* op, const WeightWarpgroup& p);

}  // namespace longhaul::cuda
