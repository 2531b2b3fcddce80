// What the kernels of causal attention share: which rows of which document a block works on, tiles in shared memory, and the
// two products between tiles. A tile has kRows rows of a document, counted from the document's first token, so that what a
// document gives does not depend on where it is packed.
//
// Blocks have 16 x 16 threads, (y, x). In a product of scores a thread has rows y * N + i of one tile against rows x + 16 j of
// the other; in a product with a tile it has rows y * N + i and columns 4 x + 64 g + (0..3).
#pragma once

#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/gpu/launch.cuh"

namespace longhaul::gpu::attention {

inline constexpr int kSide = 16;  // of the square of threads
static_assert(kSide * kSide == kThreads);

// Rows of one head of a [tokens, heads, columns] tensor with strides.
template <class T>
struct Heads {
  T* data = nullptr;
  int64_t token_stride = 0, head_stride = 0;
  int columns = 0;
  bool wide = false;  // rows may be moved kWidth elements at a time

  explicit Heads(const TensorView& view)
      : data(typed<std::remove_const_t<T>>(view)),
        token_stride(view.stride(0)),
        head_stride(view.stride(1)),
        columns(static_cast<int>(view.size(2))),
        wide(is_wide({&view})) {}
  __device__ T* row(int64_t token, int64_t head) const { return data + token * token_stride + head * head_stride; }
};

// Where documents and their tiles begin.
struct Documents {
  const int64_t* cu_seqlens = nullptr;   // [count + 1]
  const int64_t* tile_starts = nullptr;  // [count + 1]
  int64_t count = 0;
  int64_t tokens = 0;
};

[[nodiscard]] inline Documents documents_of(const TensorView& cu_seqlens, const TensorView& tile_starts, int64_t tokens) {
  return {cu_seqlens.data<int64_t>(), tile_starts.data<int64_t>(), cu_seqlens.size(0) - 1, tokens};
}

// A tile of a document.
struct TilePlace {
  int64_t document_begin = 0;  // first token
  int length = 0;              // of the document; 0: there is no such tile
  int index = 0;               // in the document
};

__device__ inline TilePlace find_tile(const Documents& documents, int64_t index) {
  int64_t low = 0, high = documents.count;  // starts[low] <= index, and < starts[high] where there is such a tile
  if (index >= documents.tile_starts[documents.count]) {
    return {};
  }
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (documents.tile_starts[middle] <= index) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t begin = documents.cu_seqlens[low];
  return {begin, static_cast<int>(documents.cu_seqlens[low + 1] - begin), static_cast<int>(index - documents.tile_starts[low])};
}

// Tiles of `rows` rows that all documents together can have at most.
[[nodiscard]] inline unsigned most_tiles(const Documents& documents, int rows) {
  return static_cast<unsigned>(ceil_div(documents.tokens, rows) + documents.count);
}

// Writes tile_starts for tiles of `rows` rows.
void start_tiles(ExecContext& ctx, const TensorView& cu_seqlens, const TensorView& tile_starts, int rows);

// Columns of a tile in shared memory are D, a multiple of 64; rows are 4 elements longer, so that 8 rows meet no bank twice.
template <int D>
inline constexpr int kStride = D + 4;

// Rows [first, first + R) of a head into shared memory as float, zeros beside and below. `rows` of them exist.
template <int R, int D, class T>
__device__ inline void load_tile(float* shared, const Heads<const T>& from, int64_t first, int64_t head, int rows) {
  constexpr int kParts = D / kWidth;
  for (int i = static_cast<int>(threadIdx.x); i < R * kParts; i += kThreads) {
    const int r = i / kParts, c = i % kParts * kWidth;
    float v[kWidth] = {};
    if (r < rows && c < from.columns) {
      const T* row = from.row(first + r, head) + c;
      if (from.wide) {
        load<kWidth>(row, v);
      } else {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          if (c + j < from.columns) {
            v[j] = to_float(row[j]);
          }
        }
      }
    }
    store<kWidth>(shared + r * kStride<D> + c, v);
  }
}

// out[i][j] = <a[y N + i], b[x + 16 j]> over D columns.
template <int N, int D>
__device__ inline void scores(const float* a, const float* b, int columns, float (&out)[N][N]) {
  const int y = static_cast<int>(threadIdx.x) / kSide, x = static_cast<int>(threadIdx.x) % kSide;
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      out[i][j] = 0;
    }
  }
#pragma unroll 2
  for (int c = 0; c < columns; c += 4) {
    float4 left[N], right[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      left[i] = *reinterpret_cast<const float4*>(a + (y * N + i) * kStride<D> + c);
      right[i] = *reinterpret_cast<const float4*>(b + (x + kSide * i) * kStride<D> + c);
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        out[i][j] += left[i].x * right[j].x;
        out[i][j] += left[i].y * right[j].y;
        out[i][j] += left[i].z * right[j].z;
        out[i][j] += left[i].w * right[j].w;
      }
    }
  }
}

// Rows of a square of scores in shared memory, R x R.
template <int R>
inline constexpr int kSquareStride = R + 4;

template <int R>
__device__ inline void store_square(float* square, const float (&values)[R / kSide][R / kSide]) {
  const int y = static_cast<int>(threadIdx.x) / kSide, x = static_cast<int>(threadIdx.x) % kSide;
#pragma unroll
  for (int i = 0; i < R / kSide; ++i) {
#pragma unroll
    for (int j = 0; j < R / kSide; ++j) {
      square[(y * (R / kSide) + i) * kSquareStride<R> + x + kSide * j] = values[i][j];
    }
  }
}

// A thread's share of a tile [R, D] in registers.
template <int R, int D>
struct Share {
  static constexpr int kRows = R / kSide, kGroups = D / 64;
  float values[kRows][kGroups][4] = {};

  // += square [R, R] times the tile b [R, D].
  __device__ void add_product(const float* square, const float* b) {
    const int y = static_cast<int>(threadIdx.x) / kSide, x = static_cast<int>(threadIdx.x) % kSide;
#pragma unroll 1
    for (int k = 0; k < R; k += 4) {
      float4 left[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        left[i] = *reinterpret_cast<const float4*>(square + (y * kRows + i) * kSquareStride<R> + k);
      }
#pragma unroll
      for (int step = 0; step < 4; ++step) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          const float4 right = *reinterpret_cast<const float4*>(b + (k + step) * kStride<D> + 4 * x + 64 * g);
#pragma unroll
          for (int i = 0; i < kRows; ++i) {
            const float weight = step == 0 ? left[i].x : step == 1 ? left[i].y : step == 2 ? left[i].z : left[i].w;
            values[i][g][0] += weight * right.x;
            values[i][g][1] += weight * right.y;
            values[i][g][2] += weight * right.z;
            values[i][g][3] += weight * right.w;
          }
        }
      }
    }
  }

  // Row i of the share times factor[i] to the rows from `first` on, of which `rows` exist.
  template <class T>
  __device__ void write(const Heads<T>& to, int64_t first, int64_t head, int rows, const float (&factor)[kRows]) const {
    const int y = static_cast<int>(threadIdx.x) / kSide, x = static_cast<int>(threadIdx.x) % kSide;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int r = y * kRows + i;
      if (r >= rows) {
        continue;
      }
      T* row = to.row(first + r, head);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int c = 4 * x + 64 * g + j;
          if (c < to.columns) {
            row[c] = from_float<T>(values[i][g][j] * factor[i]);
          }
        }
      }
    }
  }
};

// Calls fn with the columns of tiles for vectors of `dim` elements: a multiple of 64, at most kMaxAttentionDim.
template <class Fn>
void with_columns(int64_t dim, Fn&& fn) {
  if (dim <= 64) {
    fn(std::integral_constant<int, 64>{});
  } else if (dim <= 128) {
    fn(std::integral_constant<int, 128>{});
  } else if (dim <= 192) {
    fn(std::integral_constant<int, 192>{});
  } else {
    fn(std::integral_constant<int, 256>{});
  }
}

}  // namespace longhaul::gpu::attention
