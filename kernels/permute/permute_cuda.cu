// A stable counting sort for the plan, and passes over rows. Sums over choices are in the order of choices, in float.
#include "kernels/gpu/counting_sort.h"
#include "kernels/gpu/launch.cuh"
#include "kernels/permute/permute_cuda.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;

// Rows as units of bits, the largest that fit.
template <class Unit>
struct MoveRows {
  const Unit* x;
  Unit* y;
  const int64_t* row_of_slot;
  int64_t units, top_k;  // units of a row
  template <int W>
  __device__ void apply(int64_t i) const {
    const int64_t slot = i / units, c = i % units;
    y[row_of_slot[slot] * units + c] = x[slot / top_k * units + c];
  }
};

// y[t] = sum over choices of (weight times) the choice's row.
template <class T>
struct GatherRows {
  const T* x;
  const int64_t* row_of_slot;
  const float* weights;  // nullptr: all 1
  T* y;
  int64_t dim, top_k;
  template <int W>
  __device__ void apply(int64_t i) const {
    const int64_t t = i / dim, c = i % dim;
    float sum[W] = {}, v[W];
    for (int64_t choice = 0; choice < top_k; ++choice) {
      const int64_t slot = t * top_k + choice;
      const float weight = weights == nullptr ? 1.0f : weights[slot];
      load<W>(x + row_of_slot[slot] * dim + c, v);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        sum[j] += weight * v[j];
      }
    }
    store<W>(y + i, sum);
  }
};

template <class T>
struct CombineGradient {
  const T *dy, *x;
  const int64_t* row_of_slot;
  const float* weights;
  T* dx;
  float* dweights;
  int64_t slots, dim, top_k;
};

template <class T, int W, int G>
__global__ void __launch_bounds__(kThreads) combine_backward_kernel(CombineGradient<T> p) {
  const int64_t slot = int64_t{blockIdx.x} * Group<G>::kGroups + Group<G>::index();
  if (slot >= p.slots) {
    return;
  }
  const T* dy = p.dy + slot / p.top_k * p.dim;
  const int64_t row = p.row_of_slot[slot] * p.dim;
  const float weight = p.weights[slot];
  float along = 0, u[W], v[W];
  for (int64_t c = Group<G>::thread() * W; c < p.dim; c += G * W) {
    load<W>(dy + c, u);
    load<W>(p.x + row + c, v);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      along += u[j] * v[j];
      u[j] *= weight;
    }
    store<W>(p.dx + row + c, u);
  }
  along = Group<G>::sum(along);
  if (Group<G>::thread() == 0) {
    p.dweights[slot] = along;
  }
}

template <class Unit>
void move_rows(ExecContext& ctx, const PermuteForward& op) {
  const int64_t units = op.x.size(1) * size_of(op.x.dtype()) / static_cast<int64_t>(sizeof(Unit));
  launch_singly(ctx, "permute_forward", op.row_of_slot.numel() * units,
                MoveRows<Unit>{static_cast<const Unit*>(op.x.raw()), static_cast<Unit*>(op.y.raw()), op.row_of_slot.data<int64_t>(), units, op.top_k});
}

}  // namespace

void plan_permutation(ExecContext& ctx, const PlanPermutation& op, const TensorView& counts) {
  counting_sort(ctx, {.keys = op.experts.data<int32_t>(), .n = op.experts.numel(), .buckets = op.num_experts, .counts = counts,
                      .offsets = op.offsets.data<int64_t>(), .places = op.row_of_slot.data<int64_t>()});
}

void permute_forward(ExecContext& ctx, const PermuteForward& op) {
  const int64_t row_bytes = op.x.size(1) * size_of(op.x.dtype());
  if (row_bytes % 16 == 0 && is_aligned({op.x.raw(), op.y.raw()})) {
    move_rows<uint4>(ctx, op);
    return;
  }
  switch (size_of(op.x.dtype())) {
    case 8: move_rows<uint64_t>(ctx, op); return;
    case 4: move_rows<uint32_t>(ctx, op); return;
    case 2: move_rows<uint16_t>(ctx, op); return;
    default: move_rows<uint8_t>(ctx, op); return;
  }
}

void permute_backward(ExecContext& ctx, const PermuteBackward& op) {
  dispatch_compute(op.dy.dtype(), "permute_backward", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "permute_backward", op.dx.numel(), is_wide({&op.dy, &op.dx}),
                GatherRows<T>{typed<T>(op.dy), op.row_of_slot.data<int64_t>(), nullptr, typed<T>(op.dx), op.dx.size(1), op.top_k});
  });
}

void combine_forward(ExecContext& ctx, const CombineForward& op) {
  dispatch_compute(op.x.dtype(), "combine_forward", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "combine_forward", op.y.numel(), is_wide({&op.x, &op.y}),
                GatherRows<T>{typed<T>(op.x), op.row_of_slot.data<int64_t>(), op.weights.data<float>(), typed<T>(op.y), op.y.size(1), op.weights.size(1)});
  });
}

void combine_backward(ExecContext& ctx, const CombineBackward& op) {
  const int64_t slots = op.row_of_slot.numel(), dim = op.dy.size(1);
  if (slots == 0) {
    return;
  }
  dispatch_compute(op.x.dtype(), "combine_backward", [&](auto zero) {
    using T = decltype(zero);
    const CombineGradient<T> p{typed<T>(op.dy), typed<T>(op.x), op.row_of_slot.data<int64_t>(), op.weights.data<float>(), typed<T>(op.dx),
                               op.dweights.data<float>(), slots, dim, op.weights.size(1)};
    with_row_shape(is_wide({&op.dy, &op.x, &op.dx}), dim, [&](auto w, auto g) {
      combine_backward_kernel<T, w(), g()><<<blocks_for_rows(slots, g()), kThreads, 0, stream_of(ctx)>>>(p);
    });
  });
  LH_CHECK_LAUNCH(ctx, "combine_backward");
}

}  // namespace longhaul::cuda
