// Moving token rows to expert order and back on the CPU: a stable counting sort, then plain row loops. Every sum over
// choices is in the order of choices, so a token's result does not depend on where its rows lie.
#include "kernels/permute/permute_cpu.h"

#include <algorithm>
#include <cstring>

#include "kernels/math/lane_sum.h"

namespace longhaul::cpu {
namespace {

// The row of a slot, checked: a stray row number would write outside the tensor.
int64_t row_at(const TensorView& row_of_slot, int64_t slot) {
  const int64_t row = row_of_slot.data<int64_t>()[slot];
  LH_CHECK(row >= 0 && row < row_of_slot.numel(), "slot {} has row {} of {}", slot, row, row_of_slot.numel());
  return row;
}

template <class T>
void gather_sum(const PermuteBackward& op) {
  const int64_t dim = op.dx.size(1);
  for (int64_t t = 0; t < op.dx.size(0); ++t) {
    T* dx = op.dx.data<T>() + t * dim;
    for (int64_t c = 0; c < op.top_k; ++c) {
      const T* dy = op.dy.data<T>() + row_at(op.row_of_slot, t * op.top_k + c) * dim;
      for (int64_t j = 0; j < dim; ++j) {
        dx[j] = c == 0 ? dy[j] : dx[j] + dy[j];
      }
    }
  }
}

template <class T>
void combine(const CombineForward& op) {
  const int64_t dim = op.y.size(1);
  const int64_t top_k = op.weights.size(1);
  for (int64_t t = 0; t < op.y.size(0); ++t) {
    T* y = op.y.data<T>() + t * dim;
    for (int64_t c = 0; c < top_k; ++c) {
      const T* x = op.x.data<T>() + row_at(op.row_of_slot, t * top_k + c) * dim;
      const T weight = op.weights.data<T>()[t * top_k + c];
      for (int64_t j = 0; j < dim; ++j) {
        y[j] = c == 0 ? weight * x[j] : y[j] + weight * x[j];
      }
    }
  }
}

template <class T>
void combine_gradient(const CombineBackward& op) {
  const int64_t dim = op.dy.size(1);
  const int64_t top_k = op.weights.size(1);
  for (int64_t t = 0; t < op.dy.size(0); ++t) {
    const T* dy = op.dy.data<T>() + t * dim;
    for (int64_t c = 0; c < top_k; ++c) {
      const int64_t slot = t * top_k + c;
      const int64_t row = row_at(op.row_of_slot, slot);
      const T* x = op.x.data<T>() + row * dim;
      T* dx = op.dx.data<T>() + row * dim;
      const T weight = op.weights.data<T>()[slot];
      op.dweights.data<T>()[slot] = static_cast<T>(math::lane_sum(dim, [=](int64_t j) { return dy[j] * x[j]; }));
      for (int64_t j = 0; j < dim; ++j) {
        dx[j] = weight * dy[j];
      }
    }
  }
}

}  // namespace

void plan_permutation(const PlanPermutation& op, const TensorView& next_row) {
  const int32_t* experts = op.experts.data<int32_t>();
  const int64_t slots = op.experts.numel();
  int64_t* offsets = op.offsets.data<int64_t>();
  int64_t* next = next_row.data<int64_t>();
  std::fill_n(offsets, op.num_experts + 1, 0);
  for (int64_t s = 0; s < slots; ++s) {
    LH_CHECK(experts[s] >= 0 && experts[s] < op.num_experts, "expert {} of slot {} is not below {}", experts[s], s, op.num_experts);
    ++offsets[experts[s] + 1];
  }
  for (int64_t e = 0; e < op.num_experts; ++e) {
    next[e] = offsets[e];
    offsets[e + 1] += offsets[e];
  }
  for (int64_t s = 0; s < slots; ++s) {
    op.row_of_slot.data<int64_t>()[s] = next[experts[s]]++;
  }
}

void permute_forward(const PermuteForward& op) {
  const int64_t row_bytes = op.x.size(1) * size_of(op.x.dtype());
  const auto* x = static_cast<const std::byte*>(op.x.raw());
  auto* y = static_cast<std::byte*>(op.y.raw());
  for (int64_t s = 0; s < op.row_of_slot.numel(); ++s) {
    std::memcpy(y + row_at(op.row_of_slot, s) * row_bytes, x + s / op.top_k * row_bytes, static_cast<size_t>(row_bytes));
  }
}

void permute_backward(const PermuteBackward& op) {
  dispatch_float(op.dy.dtype(), "permute_backward", [&](auto zero) { gather_sum<decltype(zero)>(op); });
}

void combine_forward(const CombineForward& op) {
  dispatch_float(op.x.dtype(), "combine_forward", [&](auto zero) { combine<decltype(zero)>(op); });
}

void combine_backward(const CombineBackward& op) {
  dispatch_float(op.x.dtype(), "combine_backward", [&](auto zero) { combine_gradient<decltype(zero)>(op); });
}

}  // namespace longhaul::cpu
