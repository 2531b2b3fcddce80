// Products of ragged groups of rows. Activations: a block for a tile of an expert's rows, which it finds from the offsets.
// Weight gradients: a block for a tile of an expert's weight, which sums over that expert's rows in their order.
// bf16 on tensor cores, fp32 without. The kernels here run on all chips and for all sizes; Hopper has its own where they fit.
#include "kernels/gpu/launch.cuh"
#include "kernels/grouped_linear/float_tile.cuh"
#include "kernels/grouped_linear/grouped_linear_cuda.h"
#include "kernels/grouped_linear/grouped_linear_warpgroup.h"
#include "kernels/grouped_linear/groups.cuh"
#include "kernels/grouped_linear/tensor_tile.cuh"

namespace longhaul::cuda {
namespace {

using namespace gpu;

// y[row, n] (+)= sum over k of x[row, k] w(n, k), for the rows of each expert.
template <class T>
struct RowsProduct {
  const T* x;
  int64_t x_stride;
  const T* weight;  // [experts, out, in]
  int64_t out, in;
  const int64_t* offsets;
  int64_t experts;
  T* y;
  int64_t y_stride;
  int64_t n, k;  // forward: out, in; the gradient of x: in, out
  bool forward;
  bool adds;
};

template <class T>
__device__ void put(T* at, float value, bool adds) {
  *at = from_float<T>(adds ? to_float(*at) + value : value);
}

template <bool kForward, bool kAligned>
__global__ void __launch_bounds__(kThreads, 2) rows_tensor_kernel(RowsProduct<BF16> p) {
  extern __shared__ __align__(16) BF16 shared[];
  const RowTile tile = find_row_tile(p.offsets, p.experts, blockIdx.y, kTile);
  if (tile.expert < 0) {
    return;
  }
  const int64_t first_column = int64_t{blockIdx.x} * kTile;
  constexpr Inner kWeight = kForward ? Inner::AlongK : Inner::AcrossK;
  TileSums sums;
  multiply_tile<Inner::AlongK, kWeight, kAligned>(sums, shared, {p.x + tile.first * p.x_stride, p.x_stride, 0, tile.rows},
                                                  {p.weight + tile.expert * p.out * p.in, p.in, first_column, p.n}, p.k);
  sums.for_each_pair([&](int row, int column, float low, float high) {
    if (row >= tile.rows) {
      return;
    }
    BF16* y = p.y + (tile.first + row) * p.y_stride + first_column + column;
    if (first_column + column < p.n) {
      put(y, low, p.adds);
    }
    if (first_column + column + 1 < p.n) {
      put(y + 1, high, p.adds);
    }
  });
}

__global__ void __launch_bounds__(kThreads) rows_float_kernel(RowsProduct<float> p) {
  const RowTile tile = find_row_tile(p.offsets, p.experts, blockIdx.y, kFloatTile);
  if (tile.expert < 0) {
    return;
  }
  const int64_t first_column = int64_t{blockIdx.x} * kFloatTile;
  FloatSums sums;
  multiply_float_tile(sums, {p.x + tile.first * p.x_stride, p.x_stride, 1, 0, tile.rows},
                      {p.weight + tile.expert * p.out * p.in, p.forward ? p.in : 1, p.forward ? 1 : p.in, first_column, p.n}, p.k);
  sums.for_each([&](int row, int column, float value) {
    if (row < tile.rows && first_column + column < p.n) {
      put(p.y + (tile.first + row) * p.y_stride + first_column + column, value, p.adds);
    }
  });
}

// dweight[expert, o, i] += sum over the expert's rows of dy[row, o] x[row, i].
template <class T>
struct WeightProduct {
  const T* dy;
  int64_t dy_stride;
  const T* x;
  int64_t x_stride;
  const int64_t* offsets;
  float* dweight;  // [experts, out, in]
  int64_t out, in;
};

template <bool kAligned>
__global__ void __launch_bounds__(kThreads, 2) weight_tensor_kernel(WeightProduct<BF16> p) {
  extern __shared__ __align__(16) BF16 shared[];
  const int64_t expert = blockIdx.z, begin = p.offsets[expert], rows = p.offsets[expert + 1] - begin;
  if (rows == 0) {
    return;
  }
  const int64_t first_row = int64_t{blockIdx.y} * kTile, first_column = int64_t{blockIdx.x} * kTile;
  TileSums sums;
  multiply_tile<Inner::AcrossK, Inner::AcrossK, kAligned>(sums, shared, {p.dy + begin * p.dy_stride, p.dy_stride, first_row, p.out},
                                                          {p.x + begin * p.x_stride, p.x_stride, first_column, p.in}, rows);
  sums.for_each_pair([&](int row, int column, float low, float high) {
    if (first_row + row >= p.out) {
      return;
    }
    float* at = p.dweight + (expert * p.out + first_row + row) * p.in + first_column + column;
    if (first_column + column < p.in) {
      at[0] += low;
    }
    if (first_column + column + 1 < p.in) {
      at[1] += high;
    }
  });
}

__global__ void __launch_bounds__(kThreads) weight_float_kernel(WeightProduct<float> p) {
  const int64_t expert = blockIdx.z, begin = p.offsets[expert], rows = p.offsets[expert + 1] - begin;
  if (rows == 0) {
    return;
  }
  const int64_t first_row = int64_t{blockIdx.y} * kFloatTile, first_column = int64_t{blockIdx.x} * kFloatTile;
  FloatSums sums;
  multiply_float_tile(sums, {p.dy + begin * p.dy_stride, 1, p.dy_stride, first_row, p.out},
                      {p.x + begin * p.x_stride, 1, p.x_stride, first_column, p.in}, rows);
  sums.for_each([&](int row, int column, float value) {
    if (first_row + row < p.out && first_column + column < p.in) {
      p.dweight[(expert * p.out + first_row + row) * p.in + first_column + column] += value;
    }
  });
}

template <class Kernel, class Params>
void launch_tensor(ExecContext& ctx, const char* op, Kernel* kernel, dim3 grid, int shared_bytes, const Params& p) {
  allow_shared(kernel, shared_bytes);
  kernel<<<grid, kThreads, static_cast<size_t>(shared_bytes), stream_of(ctx)>>>(p);
  LH_CHECK_LAUNCH(ctx, op);
}

dim3 tiles(int64_t columns, int64_t row_tiles, int tile, int64_t experts = 1) {
  return dim3(static_cast<unsigned>(ceil_div(columns, tile)), static_cast<unsigned>(row_tiles), static_cast<unsigned>(experts));
}

template <class T>
void rows_product(ExecContext& ctx, const char* op, const TensorView& x, const TensorView& weight, const TensorView& offsets,
                  const TensorView& y, bool forward, bool adds) {
  const int64_t out = weight.size(1), in = weight.size(2), experts = weight.size(0), rows = x.size(0);
  const RowsProduct<T> p{typed<T>(x), x.stride(0), typed<T>(weight), out, in, offsets.data<int64_t>(), experts, typed<T>(y), y.stride(0),
                         forward ? out : in, forward ? in : out, forward, adds};
  if (rows == 0 || p.n == 0) {
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    rows_float_kernel<<<tiles(p.n, most_row_tiles(rows, experts, kFloatTile), kFloatTile), kThreads, 0, stream_of(ctx)>>>(p);
    LH_CHECK_LAUNCH(ctx, op);
  } else {
    const dim3 grid = tiles(p.n, most_row_tiles(rows, experts, kTile), kTile);
    const bool aligned = is_wide({&x, &weight}) && out % kWidth == 0;
    if (forward) {
      constexpr int kBytes = kSharedBytes<Inner::AlongK, Inner::AlongK>;
      launch_tensor(ctx, op, aligned ? rows_tensor_kernel<true, true> : rows_tensor_kernel<true, false>, grid, kBytes, p);
    } else {
      constexpr int kBytes = kSharedBytes<Inner::AlongK, Inner::AcrossK>;
      launch_tensor(ctx, op, aligned ? rows_tensor_kernel<false, true> : rows_tensor_kernel<false, false>, grid, kBytes, p);
    }
  }
}

template <class T>
void weight_product(ExecContext& ctx, const char* op, const TensorView& dy, const TensorView& x, const TensorView& offsets,
                    const TensorView& dweight) {
  const int64_t out = dweight.size(1), in = dweight.size(2), experts = dweight.size(0);
  const WeightProduct<T> p{typed<T>(dy), dy.stride(0), typed<T>(x), x.stride(0), offsets.data<int64_t>(), dweight.data<float>(), out, in};
  if (dweight.numel() == 0 || x.size(0) == 0) {
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    weight_float_kernel<<<tiles(in, ceil_div(out, kFloatTile), kFloatTile, experts), kThreads, 0, stream_of(ctx)>>>(p);
    LH_CHECK_LAUNCH(ctx, op);
  } else {
    constexpr int kBytes = kSharedBytes<Inner::AcrossK, Inner::AcrossK>;
    const bool aligned = is_wide({&dy, &x});
    const dim3 grid = tiles(in, ceil_div(out, kTile), kTile, experts);
    launch_tensor(ctx, op, aligned ? weight_tensor_kernel<true> : weight_tensor_kernel<false>, grid, kBytes, p);
  }
}

bool uses_warpgroups(ExecContext& ctx, TensorCores cores, const TensorView& x, const TensorView& weight,
                     std::initializer_list<const TensorView*> views) {
  return cores == TensorCores::Best && x.dtype() == DType::BF16 && fits_warpgroup(ctx, x.size(0), weight.size(0), views);
}

}  // namespace

void grouped_linear_forward(ExecContext& ctx, const GroupedLinearForward& op, TensorCores cores) {
  constexpr const char* kName = "grouped_linear_forward";
  if (uses_warpgroups(ctx, cores, op.x, op.weight, {&op.x, &op.weight, &op.y})) {
    rows_warpgroup(ctx, kName, {.x = op.x, .weight = op.weight, .offsets = op.offsets, .y = op.y, .use = WeightUse::Forward,
                                .accumulate = Accumulate::Overwrite});
    return;
  }
  dispatch_compute(op.x.dtype(), kName, [&](auto zero) {
    rows_product<decltype(zero)>(ctx, kName, op.x, op.weight, op.offsets, op.y, true, false);
  });
}

void grouped_linear_backward(ExecContext& ctx, const GroupedLinearBackward& op, TensorCores cores) {
  constexpr const char* kName = "grouped_linear_backward";
  dispatch_compute(op.x.dtype(), kName, [&](auto zero) {
    using T = decltype(zero);
    if (op.dx.is_present()) {
      if (uses_warpgroups(ctx, cores, op.x, op.weight, {&op.dy, &op.weight, &op.dx})) {
        rows_warpgroup(ctx, kName, {.x = op.dy, .weight = op.weight, .offsets = op.offsets, .y = op.dx, .use = WeightUse::Backward,
                                    .accumulate = op.accumulate_dx});
      } else {
        rows_product<T>(ctx, kName, op.dy, op.weight, op.offsets, op.dx, false, op.accumulate_dx == Accumulate::Add);
      }
    }
    if (op.dweight.is_present()) {
      if (uses_warpgroups(ctx, cores, op.x, op.weight, {&op.dy, &op.x, &op.dweight})) {
        weight_warpgroup(ctx, kName, {.dy = op.dy, .x = op.x, .offsets = op.offsets, .dweight = op.dweight});
      } else {
        weight_product<T>(ctx, kName, op.dy, op.x, op.offsets, op.dweight);
      }
    }
  });
}

}  // namespace longhaul::cuda
