// Element types on the GPU: typed pointers from views, dispatch, and loads and stores of several elements at once, always
// widened to float. Arithmetic on the GPU is in float whatever the storage.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "tensor/tensor_view.h"

namespace longhaul::gpu {

using BF16 = __nv_bfloat16;

// Elements that a thread moves at once where addresses allow: 16 bytes of bf16.
inline constexpr int kWidth = 8;

// A view's memory as T; ShapeError when the type is another one.
template <class T>
[[nodiscard]] T* typed(const TensorView& view) {
  using Element = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Element, BF16>) {
    return reinterpret_cast<BF16*>(view.data<BFloat16>());
  } else {
    return view.data<Element>();
  }
}

// Calls fn with a value of the C++ type for `dtype`, which must be F32 or BF16: the compute types of the CUDA backend.
template <class Fn>
void dispatch_compute(DType dtype, const char* op, Fn&& fn) {
  if (dtype == DType::F32) {
    fn(float{});
    return;
  }
  if (dtype == DType::BF16) {
    fn(BF16{});
    return;
  }
  throw_wrong_type(op, "the CUDA backend", "f32 or bf16", dtype);
}

// Two types at once, for gradients that come in the compute or in the accurate type.
template <class Fn>
void dispatch_compute(DType first, DType second, const char* op, Fn&& fn) {
  dispatch_compute(first, op, [&](auto a) { dispatch_compute(second, op, [&](auto b) { fn(a, b); }); });
}

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(BF16 x) { return __bfloat162float(x); }

template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, BF16>) {
    return __float2bfloat16_rn(x);
  } else {
    return x;
  }
}

// W is 1 or kWidth; for kWidth the address must be aligned to 16 bytes.
template <int W>
__device__ inline void load(const float* from, float (&to)[W]) {
  if constexpr (W == kWidth) {
    const float4 low = reinterpret_cast<const float4*>(from)[0], high = reinterpret_cast<const float4*>(from)[1];
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
  } else {
    to[0] = *from;
  }
}
template <int W>
__device__ inline void load(const BF16* from, float (&to)[W]) {
  if constexpr (W == kWidth) {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = __uint_as_float(pairs[i] << 16);
      to[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
  } else {
    to[0] = __bfloat162float(*from);
  }
}
template <int W>
__device__ inline void store(float* to, const float (&from)[W]) {
  if constexpr (W == kWidth) {
    reinterpret_cast<float4*>(to)[0] = make_float4(from[0], from[1], from[2], from[3]);
    reinterpret_cast<float4*>(to)[1] = make_float4(from[4], from[5], from[6], from[7]);
  } else {
    *to = from[0];
  }
}
template <int W>
__device__ inline void store(BF16* to, const float (&from)[W]) {
  if constexpr (W == kWidth) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
      pairs[i] = *reinterpret_cast<const uint32_t*>(&pair);
    }
    *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  } else {
    *to = __float2bfloat16_rn(from[0]);
  }
}

// May rows of these views be moved kWidth elements at a time? Absent views do not matter.
[[nodiscard]] inline bool is_wide(std::initializer_list<const TensorView*> views) {
  for (const TensorView* view : views) {
    if (!view->is_present()) {
      continue;
    }
    if (reinterpret_cast<uintptr_t>(view->raw()) % 16 != 0 || view->rank() == 0 || view->size(-1) % kWidth != 0) {
      return false;
    }
    for (int dim = 0; dim + 1 < view->rank(); ++dim) {
      if (view->stride(dim) % kWidth != 0) {
        return false;
      }
    }
  }
  return true;
}

// The rows of a matrix whose innermost stride is 1.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0;

  __device__ T* operator[](int64_t row) const { return data + row * stride; }
};
template <class T>
[[nodiscard]] Rows<T> rows_of(const TensorView& view) {
  return {typed<T>(view), view.stride(0)};
}

}  // namespace longhaul::gpu
