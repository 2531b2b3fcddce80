// A slice of the value dimension of a state [key_dim, value_dim] in shared memory, and which chunks of a document a block
// walks over.
#pragma once

#include "kernels/kda/general/products.cuh"

namespace longhaul::cuda::kda_general {

// [key_tiles * 64, N] at columns [first, first + N) of the state; zeros beyond its sizes.
template <int N>
struct StateSlice {
  float* data;
  int key_rows;    // key_tiles * 64
  int64_t key_dim, value_dim, first;

  // From a whole state; null: zeros.
  __device__ void load(const float* state) const {
    each([&](int row, int column, bool inside) {
      const bool known = inside && state != nullptr;
      store4(data + row * N + column, known ? load4(state + row * value_dim + first + column) : make_float4(0, 0, 0, 0));
    });
  }
  // Adding +0 turns -0 into +0: which zero it is could depend on later zeros, that is on the future.
  __device__ void store(float* state) const {
    each([&](int row, int column, bool inside) {
      if (inside) {
        const float4 x = load4(data + row * N + column);
        store4(state + row * value_dim + first + column, make_float4(x.x + 0.0f, x.y + 0.0f, x.z + 0.0f, x.w + 0.0f));
      }
    });
  }

 private:
  template <class Fn>
  __device__ void each(Fn&& fn) const {
    for (int at = static_cast<int>(threadIdx.x); at < key_rows * (N / 4); at += kThreads) {
      const int row = at / (N / 4), column = at % (N / 4) * 4;
      fn(row, column, row < key_dim && first + column < value_dim);
    }
  }
};

// The chunks of the block's document that are in the group.
struct Walk {
  int64_t document, first, last;  // all chunks of the document: [first, last)
  int64_t begin, end;             // those of the group
  int64_t first_token;            // of chunk `begin`
  int last_rows;                  // of the document's last chunk, if it is in the group

  __device__ Walk(const Grid& grid, int64_t d)
      : document(d),
        first(grid.first_chunks[d]),
        last(grid.first_chunks[d + 1]),
        begin(max(first, grid.group_begin)),
        end(min(last, grid.group_begin + grid.group_chunks)),
        first_token(begin < end ? grid.first_token(begin) : 0),
        last_rows(begin < end && end == last ? grid.rows(end - 1) : kChunk) {}

  // Without reading the chunk table, for which a walk would have to wait.
  __device__ int64_t token(int64_t chunk) const { return first_token + (chunk - begin) * kChunk; }
  __device__ int rows(int64_t chunk) const { return chunk == last - 1 ? last_rows : kChunk; }
  __device__ bool has_no_tokens() const { return first == last; }
  __device__ bool has_no_chunks_here() const { return begin >= end; }
};

// The decay of a chunk over R key channels in each tile of 64, read one tile ahead of its use.
template <int R>
class DecayReader {
 public:
  // `total`: e^{G_C} at the thread's first channel.
  __device__ explicit DecayReader(const float* total) : total_(total) { read(0); }
  __device__ void take(int key_tile, int key_tiles, float (&to)[R]) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      to[r] = ahead_[r];
    }
    if (key_tile + 1 < key_tiles) {
      read(key_tile + 1);
    }
  }

 private:
  __device__ void read(int key_tile) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      ahead_[r] = total_[key_tile * kKeys + r];
    }
  }

  const float* total_;
  float ahead_[R];
};

}  // namespace longhaul::cuda::kda_general
