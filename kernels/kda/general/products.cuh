// Products of tiles in shared memory on plain FMA units. Each element of a result is one chain of multiply-adds in ascending
// order of the contracted index, whatever the sizes: that is what makes outputs bitwise causal. Triangular products never
// read what they exclude, so that an infinity in the future cannot become 0 * inf in the past.
//
// Tiles of the left factor are [64, 64] with rows kPitch apart.
#pragma once

#include "kernels/kda/general/arguments.cuh"

namespace longhaul::cuda::kda_general {

__device__ inline void add_product(float a, float4 b, float (&sum)[4]) {
  sum[0] = fmaf(a, b.x, sum[0]);
  sum[1] = fmaf(a, b.y, sum[1]);
  sum[2] = fmaf(a, b.z, sum[2]);
  sum[3] = fmaf(a, b.w, sum[3]);
}
__device__ inline float add_dot(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}
template <int E>
__device__ inline float element(float4 x) {
  return E == 0 ? x.x : (E == 1 ? x.y : (E == 2 ? x.z : x.w));
}

// How 256 threads share a result of [64, N]: each has R rows and four columns beside each other.
template <int N>
struct Share {
  static constexpr int kColumns = N / 4;              // of threads
  static constexpr int kRows = kChunk * kColumns / kThreads;  // of a thread
  static_assert(N % 4 == 0 && kRows >= 1 && kRows <= 4);

  __device__ static int row() { return static_cast<int>(threadIdx.x) / kColumns * kRows; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % kColumns * 4; }
};

// sum += a[rows, begin:end] b[begin:end, columns]; `a` at the thread's first row, `b` at its first column. Bounds are
// multiples of 4.
template <int R>
__device__ inline void add_rows(float (&sum)[R][4], const float* a, const float* b, int ldb, int begin, int end) {
#pragma unroll 4
  for (int p = begin; p < end; p += 4) {
    float4 left[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      left[r] = load4(a + r * kPitch + p);
    }
    const float4 b0 = load4(b + p * ldb), b1 = load4(b + (p + 1) * ldb);
    const float4 b2 = load4(b + (p + 2) * ldb), b3 = load4(b + (p + 3) * ldb);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      add_product(left[r].x, b0, sum[r]);
      add_product(left[r].y, b1, sum[r]);
      add_product(left[r].z, b2, sum[r]);
      add_product(left[r].w, b3, sum[r]);
    }
  }
}

// Two left factors at once.
template <int R>
__device__ inline void add_rows(float (&first)[R][4], float (&second)[R][4], const float* a, const float* a2, const float* b,
                                int ldb, int end) {
#pragma unroll (R == 1 ? 4 : 2)
  for (int p = 0; p < end; p += 4) {
    float4 left[R], left2[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      left[r] = load4(a + r * kPitch + p);
      left2[r] = load4(a2 + r * kPitch + p);
    }
    const float4 b0 = load4(b + p * ldb), b1 = load4(b + (p + 1) * ldb);
    const float4 b2 = load4(b + (p + 2) * ldb), b3 = load4(b + (p + 3) * ldb);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      add_product(left[r].x, b0, first[r]);
      add_product(left[r].y, b1, first[r]);
      add_product(left[r].z, b2, first[r]);
      add_product(left[r].w, b3, first[r]);
      add_product(left2[r].x, b0, second[r]);
      add_product(left2[r].y, b1, second[r]);
      add_product(left2[r].z, b2, second[r]);
      add_product(left2[r].w, b3, second[r]);
    }
  }
}

// sum[r] += a[row + r, 0 : row + r] b, up to and with the diagonal. `a` at the thread's first row, which is `row`.
template <int R>
__device__ inline void add_lower(float (&sum)[R][4], const float* a, const float* b, int ldb, int row) {
  const int whole = row & ~3;
  add_rows(sum, a, b, ldb, 0, whole);
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int p = whole + e;
    const float4 right = load4(b + p * ldb);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (p <= row + r) {
        add_product(a[r * kPitch + p], right, sum[r]);
      }
    }
  }
}

template <int R>
__device__ inline void load_column(const float* from, float (&to)[R]) {
  if constexpr (R == 4) {
    const float4 x = load4(from);
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
  } else if constexpr (R == 2) {
    const float2 x = *reinterpret_cast<const float2*>(from);
    to[0] = x.x, to[1] = x.y;
  } else {
    to[0] = *from;
  }
}

// sum[r] += kSign * sum over p in [begin, 64) of a[p, column + r] b[p, columns]: the left factor transposed; `a` at the
// thread's first column of it. kSign is 1 or -1.
template <int kSign, int R>
__device__ inline void add_transposed(float (&sum)[R][4], const float* a, const float* b, int ldb, int begin) {
#pragma unroll (R == 1 ? 8 : 4)
  for (int p = begin; p < kChunk; ++p) {
    float left[R];
    load_column(a + p * kPitch, left);
    const float4 right = load4(b + p * ldb);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      add_product(kSign < 0 ? -left[r] : left[r], right, sum[r]);
    }
  }
}

// sum[r][j] += <a row r, b row 16 j> over 64 columns: both factors by rows, the thread's columns 16 apart.
__device__ inline void add_dots(float (&sum)[4][4], const float* a, const float* b) {
#pragma unroll 2
  for (int p = 0; p < kKeys; p += 4) {
    float4 left[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      left[r] = load4(a + r * kPitch + p);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float4 right = load4(b + 16 * j * kPitch + p);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        sum[r][j] = add_dot(left[r], right, sum[r][j]);
      }
    }
  }
}

// Two left factors at once.
__device__ inline void add_dots(float (&first)[4][4], float (&second)[4][4], const float* a, const float* a2, const float* b) {
#pragma unroll 2
  for (int p = 0; p < kKeys; p += 4) {
    float4 right[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      right[j] = load4(b + 16 * j * kPitch + p);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float4 left = load4(a + r * kPitch + p), left2 = load4(a2 + r * kPitch + p);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        first[r][j] = add_dot(left, right[j], first[r][j]);
        second[r][j] = add_dot(left2, right[j], second[r][j]);
      }
    }
  }
}

// A [rows, columns] piece of a row-major matrix on its way into a panel, zeros beyond it; columns a multiple of 4. Loading well
// before storing hides the latency of memory.
struct PanelInFlight {
  static constexpr int kSteps = kTileFloats / 4 / kThreads;
  float4 x[kSteps];

  template <class T>
  __device__ void load(const T* from, int64_t stride, int64_t rows, int64_t columns) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int row = row_of(step), column = column_of(step);
      x[step] = make_float4(0, 0, 0, 0);
      if (row < rows && column < columns) {
        x[step] = load4(from + row * stride + column);
      }
    }
  }
  __device__ void store(float* panel) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      store4(panel + row_of(step) * kPitch + column_of(step), x[step]);
    }
  }

 private:
  __device__ static int row_of(int step) { return (step * kThreads + static_cast<int>(threadIdx.x)) / 16; }
  __device__ static int column_of(int) { return static_cast<int>(threadIdx.x) % 16 * 4; }
};

template <class T>
__device__ inline void load_panel(const T* from, int64_t stride, int64_t rows, int64_t columns, float* panel) {
  PanelInFlight piece;
  piece.load(from, stride, rows, columns);
  piece.store(panel);
}

}  // namespace longhaul::cuda::kda_general
