// What every kernel of the general path is given, where a chunk's rows lie, and loads of four elements widened to float.
#pragma once

#include "kernels/gpu/launch.cuh"
#include "kernels/kda/general/layout.h"
#include "kernels/kda/kda_cuda.h"

namespace longhaul::cuda::kda_general {

using gpu::BF16;

constexpr int kThreads = 256;      // of every block
constexpr int kPitch = 68;         // floats between rows of a tile in shared memory: no bank conflicts, 16-byte aligned
constexpr int kPanel = kChunk * kPitch;

// Sizes, the chunk table, and the group of chunks at hand: [group_begin, group_begin + group_chunks).
struct Grid {
  int64_t tokens, heads, key_dim, value_dim, documents;
  const int64_t* first_chunks;  // [documents + 1]
  const int64_t* chunks;        // [max_chunks, 2]
  int64_t group_begin, group_chunks;
  ImageLayout image;

  // Of a tile of key channels, those that the tensors have: a multiple of 8.
  __device__ int keys_of(int key_tile) const { return min(kKeys, static_cast<int>(key_dim) - key_tile * kKeys); }
  __device__ int64_t num_chunks() const { return first_chunks[documents]; }
  __device__ int64_t first_token(int64_t chunk) const { return chunks[2 * chunk]; }
  __device__ int rows(int64_t chunk) const { return static_cast<int>(chunks[2 * chunk + 1]); }
  __device__ int64_t key_offset(int64_t token, int64_t head) const { return (token * heads + head) * key_dim; }
  __device__ int64_t value_offset(int64_t token, int64_t head) const { return (token * heads + head) * value_dim; }
  // Of a state [key_dim, value_dim], by document or chunk.
  __device__ int64_t state_offset(int64_t index, int64_t head) const { return (index * heads + head) * key_dim * value_dim; }
  // Of what scratch holds for a chunk of the group, `size` floats a head.
  __device__ int64_t scratch_offset(int64_t chunk, int64_t head, int64_t size) const {
    return ((chunk - group_begin) * heads + head) * size;
  }
};

// [tokens, heads, ...] tensors; q and k in T.
template <class T>
struct Inputs {
  const T* q;
  const T* k;
  const T* v;
  const float* g;
  const float* beta;
  float scale;
};

template <class T, class Op>
[[nodiscard]] Inputs<T> inputs_of(const Op& op) {
  return {gpu::typed<T>(op.q), gpu::typed<T>(op.k), gpu::typed<T>(op.v), op.g.template data<float>(), op.beta.template data<float>(),
          static_cast<float>(op.scale)};
}

template <class Op>
[[nodiscard]] Grid grid_of(const Op& op, const KdaScratch& scratch) {
  return {.tokens = op.q.size(0),
          .heads = op.q.size(1),
          .key_dim = op.q.size(2),
          .value_dim = op.v.size(2),
          .documents = op.cu_seqlens.size(0) - 1,
          .first_chunks = scratch.first_chunks.template data<int64_t>(),
          .chunks = scratch.chunks.template data<int64_t>(),
          .group_begin = 0,
          .group_chunks = scratch.group_chunks,
          .image = image_layout(op.q.size(2))};
}

__device__ inline float4 load4(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ inline float4 load4(const BF16* from) {
  const uint2 words = *reinterpret_cast<const uint2*>(from);
  return make_float4(__uint_as_float(words.x << 16), __uint_as_float(words.x & 0xffff0000u), __uint_as_float(words.y << 16),
                     __uint_as_float(words.y & 0xffff0000u));
}
__device__ inline void store4(float* to, float4 x) { *reinterpret_cast<float4*>(to) = x; }
__device__ inline void store4(BF16* to, float4 x) {
  const __nv_bfloat162 low = __floats2bfloat162_rn(x.x, x.y), high = __floats2bfloat162_rn(x.z, x.w);
  *reinterpret_cast<uint2*>(to) = make_uint2(*reinterpret_cast<const uint32_t*>(&low), *reinterpret_cast<const uint32_t*>(&high));
}

// Columns of a value slice that a block of the walks has: half as many where documents and heads are too few to fill a chip.
// Results do not depend on it.
template <class Fn>
void with_slice(const Grid& grid, Fn&& fn) {
  constexpr int64_t kFewBlocks = 132;
  if (grid.documents * grid.heads * gpu::ceil_div(grid.value_dim, 32) < kFewBlocks) {
    fn(std::integral_constant<int, 16>{});
  } else {
    fn(std::integral_constant<int, 32>{});
  }
}

// A view's floats, or null where it is absent.
[[nodiscard]] inline float* optional(const TensorView& view) { return view.is_present() ? view.data<float>() : nullptr; }

// Enqueues the chunk table. Once a call.
void make_chunks(ExecContext& ctx, const TensorView& cu_seqlens, int64_t tokens, const KdaScratch& scratch);
// Enqueues the images of the group's chunks. T is float or BF16.
template <class T>
void make_images(ExecContext& ctx, const Grid& grid, const Inputs<T>& in, KdaTiles tiles, float* images);
// Enqueues the gradients of the group's chunks, from what the walks left in scratch.
template <class T>
void make_gradients(ExecContext& ctx, const Grid& grid, const KdaBackward& op, const KdaScratch& scratch);

}  // namespace longhaul::cuda::kda_general
