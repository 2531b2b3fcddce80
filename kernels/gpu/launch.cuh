// Shapes of launches: one thread for some elements, or a group of threads for a row; and sums over a group. A sum's order
// depends on the shape of the tensor alone, so results repeat bit for bit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/cuda_check.h"
#include "device/exec_context.h"
#include "kernels/gpu/types.cuh"

namespace longhaul::gpu {

inline constexpr int kThreads = 256;  // of a block, everywhere

[[nodiscard]] inline cudaStream_t stream_of(const ExecContext& ctx) { return ctx.cuda_context().stream().handle(); }

__host__ __device__ inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Calls f.apply<W>(i) for the elements [i, i + W) of [0, n).
template <int W, class F>
__global__ void __launch_bounds__(kThreads) each_kernel(int64_t n, F f) {
  const int64_t step = int64_t{gridDim.x} * kThreads * W;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * W; i < n; i += step) {
    if (i + W <= n) {
      f.template apply<W>(i);
      continue;
    }
    if constexpr (W > 1) {
      for (int64_t j = i; j < n; ++j) {
        f.template apply<1>(j);
      }
    }
  }
}

// One element at a time, for functions that only know that.
template <class F>
void launch_singly(ExecContext& ctx, const char* op, int64_t n, const F& f) {
  if (n == 0) {
    return;
  }
  const int64_t most = int64_t{32} * ctx.cuda_context().multiprocessors();
  each_kernel<1><<<static_cast<unsigned>(std::min(ceil_div(n, kThreads), most)), kThreads, 0, stream_of(ctx)>>>(n, f);
  LH_CHECK_LAUNCH(ctx, op);
}

// `wide`: all addresses that f touches are aligned for kWidth elements.
template <class F>
void launch_each(ExecContext& ctx, const char* op, int64_t n, bool wide, const F& f) {
  if (n == 0) {
    return;
  }
  if (!wide) {
    launch_singly(ctx, op, n, f);
    return;
  }
  const int64_t most = int64_t{32} * ctx.cuda_context().multiprocessors();
  each_kernel<kWidth><<<static_cast<unsigned>(std::min(ceil_div(n, kWidth * kThreads), most)), kThreads, 0, stream_of(ctx)>>>(n, f);
  LH_CHECK_LAUNCH(ctx, op);
}

[[nodiscard]] inline bool is_aligned(std::initializer_list<const void*> addresses) {
  return std::all_of(addresses.begin(), addresses.end(), [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; });
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

// A group of G threads (32, or the whole block) that works on one row.
template <int G>
struct Group {
  static constexpr int kGroups = kThreads / G;  // of a block
  static_assert(G == 32 || G == kThreads);

  __device__ static int index() { return static_cast<int>(threadIdx.x) / G; }
  __device__ static int thread() { return static_cast<int>(threadIdx.x) % G; }

  // The sums of N values over the group, in every thread. All threads of the group must call it.
  template <int N>
  __device__ static void sum(float (&values)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[i] = warp_sum(values[i]);
    }
    if constexpr (G > 32) {
      constexpr int kWarps = G / 32;
      __shared__ float shared[N][kWarps];
      if (threadIdx.x % 32 == 0) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          shared[i][threadIdx.x / 32] = values[i];
        }
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < N; ++i) {
        float total = 0;
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) {
          total += shared[i][warp];
        }
        values[i] = total;
      }
      __syncthreads();
    }
  }
  __device__ static float sum(float x) {
    float values[1] = {x};
    sum(values);
    return values[0];
  }
};

// Rows up to this long get one warp each, longer ones a block.
inline constexpr int64_t kWarpRow = 512;

// Calls fn(std::integral_constant<int, W>, std::integral_constant<int, G>) with the width and group for rows of `dim`.
template <class Fn>
void with_row_shape(bool wide, int64_t dim, Fn&& fn) {
  const auto choose = [&](auto w) {
    if (dim <= kWarpRow) {
      fn(w, std::integral_constant<int, 32>{});
    } else {
      fn(w, std::integral_constant<int, kThreads>{});
    }
  };
  if (wide) {
    choose(std::integral_constant<int, kWidth>{});
  } else {
    choose(std::integral_constant<int, 1>{});
  }
}

[[nodiscard]] inline unsigned blocks_for_rows(int64_t rows, int group) {
  return static_cast<unsigned>(ceil_div(rows, kThreads / group));
}

// Sums over the rows that a block visits, one for every column, in shared memory. Each thread adds to its own columns only,
// so there is nothing to order; entries of a thread lie G apart, so that a warp meets no bank twice.
template <int W, int G>
struct ColumnSums {
  float* shared;  // shared_bytes(dim)
  int64_t dim;

  __host__ __device__ static int64_t padded(int64_t dim) { return ceil_div(dim, G * W) * G * W; }
  static int64_t shared_bytes(int64_t dim) { return Group<G>::kGroups * padded(dim) * static_cast<int64_t>(sizeof(float)); }

  // The entry of column `first + j`, where `first` is where a thread's W columns begin.
  __device__ float& at(int64_t first, int j) const {
    return shared[Group<G>::index() * padded(dim) + (first / (G * W) * W + j) * G + Group<G>::thread()];
  }
  __device__ void clear() const {
    for (int64_t c = Group<G>::thread() * W; c < dim; c += G * W) {
      for (int j = 0; j < W; ++j) {
        at(c, j) = 0;
      }
    }
  }
  // Writes the sums over the block's groups to out[dim]; all threads of the block must call it.
  __device__ void write(float* out) const {
    __syncthreads();
    for (int64_t c = threadIdx.x; c < dim; c += kThreads) {
      const int64_t at_thread = c % (G * W) / W, j = c % W;
      float total = 0;
      for (int group = 0; group < Group<G>::kGroups; ++group) {
        total += shared[group * padded(dim) + (c / (G * W) * W + j) * G + at_thread];
      }
      out[c] = total;
    }
  }
};

// Dynamic shared memory beyond 48 KB must be asked for.
template <class Kernel>
void allow_shared(Kernel* kernel, int64_t bytes) {
  if (bytes > 48 * 1024) {
    LH_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  }
}

}  // namespace longhaul::gpu
