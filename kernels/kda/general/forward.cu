// The walk over the chunks of a document with the state in shared memory, for one head and a slice of the value dimension:
//   R = beta (V - (k e^G) S)   Vt = T R   O = (q e^G) S + A Vt   S' = e^{G_C} S + (k e^{G_C - G})^T Vt
// Slices do not need each other. Where a group of chunks ends inside a document, the state goes through `carry`.
#include "kernels/kda/general/products.cuh"
#include "kernels/kda/general/state.cuh"
#include "kernels/kda/general/stream.cuh"

namespace longhaul::cuda {
namespace kda_general {
namespace {

template <class T>
struct Forward {
  Grid grid;
  Inputs<T> in;
  const float* images;
  const float* initial_state;
  float* carry_in;  // [heads, key_dim, value_dim]
  float* carry_out;
  T* o;
  float* final_state;
  float* chunk_states;
};

template <int N>
constexpr int64_t shared_floats(int key_tiles) {
  return int64_t{key_tiles} * kKeys * N + 2 * kChunk * N + TileStream<ForwardOrder>::kFloats;
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads, 2) forward_kernel(Forward<T> p) {
  constexpr int R = Share<N>::kRows;
  extern __shared__ float4 shared[];
  const Grid& grid = p.grid;
  const int slices = static_cast<int>(gpu::ceil_div(grid.value_dim, N)), key_tiles = grid.image.key_tiles;
  const int64_t head = blockIdx.y / slices, slice = blockIdx.y % slices;
  const Walk walk(grid, blockIdx.x);
  float* memory = reinterpret_cast<float*>(shared);
  const StateSlice<N> state{memory, key_tiles * kKeys, grid.key_dim, grid.value_dim, slice * N};
  const auto of_document = [&](auto* states) { return states == nullptr ? states : states + grid.state_offset(walk.document, head); };
  if (walk.has_no_tokens() && grid.group_begin == 0 && p.final_state != nullptr) {
    state.load(of_document(p.initial_state));
    __syncthreads();
    state.store(of_document(p.final_state));
  }
  if (walk.has_no_chunks_here()) {
    return;
  }
  float *residual = memory + key_tiles * kKeys * N, *written = residual + kChunk * N;
  TileStream<ForwardOrder> tiles({grid.image}, written + kChunk * N, p.images + grid.scratch_offset(walk.begin, head, grid.image.floats()),
                                 grid.heads * grid.image.floats(), walk.end - walk.begin);
  state.load(walk.begin == walk.first ? of_document(p.initial_state) : static_cast<const float*>(p.carry_in + grid.state_offset(0, head)));
  const int row = Share<N>::row(), column = Share<N>::column();
  const int64_t value = slice * N + column;
  const bool has_value = value < grid.value_dim;
  for (int64_t chunk = walk.begin; chunk < walk.end; ++chunk) {
    const int64_t token = walk.token(chunk) + row;
    const int rows = walk.rows(chunk) - row;  // from the thread's first
    DecayReader<R> total(p.images + grid.scratch_offset(chunk, head, grid.image.floats()) + grid.image.total() + row);
    if (p.chunk_states != nullptr) {
      __syncthreads();
      state.store(p.chunk_states + grid.state_offset(chunk, head));
    }
    float4 v[R];
    float beta[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      v[r] = r < rows && has_value ? load4(p.in.v + grid.value_offset(token + r, head) + value) : make_float4(0, 0, 0, 0);
      beta[r] = r < rows ? p.in.beta[(token + r) * grid.heads + head] : 0.0f;
    }
    float from_k[R][4] = {}, o[R][4] = {};
    for (int t = 0; t < key_tiles; ++t) {
      const float *k_start = tiles.next() + row * kPitch, *q_start = tiles.next() + row * kPitch;
      const float* right = state.data + t * kKeys * N + column;
      add_rows(from_k, o, k_start, q_start, right, N, grid.keys_of(t));
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      store4(residual + (row + r) * N + column, make_float4(beta[r] * (v[r].x - from_k[r][0]), beta[r] * (v[r].y - from_k[r][1]),
                                                            beta[r] * (v[r].z - from_k[r][2]), beta[r] * (v[r].w - from_k[r][3])));
    }
    float solved[R][4] = {};
    add_lower(solved, tiles.next() + row * kPitch, residual + column, N, row);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      store4(written + (row + r) * N + column, make_float4(solved[r][0], solved[r][1], solved[r][2], solved[r][3]));
    }
    add_lower(o, tiles.next() + row * kPitch, written + column, N, row);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (r < rows && has_value) {
        store4(p.o + grid.value_offset(token + r, head) + value,
               make_float4(o[r][0] + 0.0f, o[r][1] + 0.0f, o[r][2] + 0.0f, o[r][3] + 0.0f));
      }
    }
    for (int t = 0; t < key_tiles; ++t) {
      float decay[R], sum[R][4];
      total.take(t, key_tiles, decay);
      const float* k_last = tiles.next() + row;
      if (row >= grid.keys_of(t)) {
        continue;
      }
      float* target = state.data + (t * kKeys + row) * N + column;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const float4 x = load4(target + r * N);
        sum[r][0] = decay[r] * x.x, sum[r][1] = decay[r] * x.y, sum[r][2] = decay[r] * x.z, sum[r][3] = decay[r] * x.w;
      }
      add_transposed<1>(sum, k_last, written + column, N, 0);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        store4(target + r * N, make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]));
      }
    }
  }
  __syncthreads();
  if (walk.end < walk.last) {
    state.store(p.carry_out + grid.state_offset(0, head));
  } else if (p.final_state != nullptr) {
    state.store(of_document(p.final_state));
  }
}

template <class T, int N>
void launch(ExecContext& ctx, const Forward<T>& p) {
  const auto bytes = shared_floats<N>(p.grid.image.key_tiles) * static_cast<int64_t>(sizeof(float));
  gpu::allow_shared(forward_kernel<T, N>, bytes);
  const dim3 blocks(static_cast<unsigned>(p.grid.documents), static_cast<unsigned>(p.grid.heads * gpu::ceil_div(p.grid.value_dim, N)));
  forward_kernel<T, N><<<blocks, kThreads, static_cast<size_t>(bytes), gpu::stream_of(ctx)>>>(p);
  LH_CHECK_LAUNCH(ctx, "kda_forward");
}

}  // namespace
}  // namespace kda_general

void kda_forward(ExecContext& ctx, const KdaForward& op, const KdaScratch& scratch) {
  using namespace kda_general;
  const int64_t tokens = op.q.size(0), documents = op.cu_seqlens.size(0) - 1;
  if (documents == 0 || op.q.size(1) == 0) {
    return;
  }
  make_chunks(ctx, op.cu_seqlens, tokens, scratch);
  gpu::dispatch_compute(op.q.dtype(), "kda_forward", [&](auto zero) {
    using T = decltype(zero);
    auto* images = scratch.images.data<float>();
    const int64_t carry = op.q.size(1) * op.q.size(2) * op.v.size(2);
    Forward<T> p{.grid = grid_of(op, scratch), .in = inputs_of<T>(op), .images = images, .initial_state = optional(op.initial_state),
                 .carry_in = scratch.carry.data<float>(), .carry_out = scratch.carry.data<float>() + carry, .o = gpu::typed<T>(op.o),
                 .final_state = optional(op.final_state), .chunk_states = optional(op.chunk_states)};
    for (const int64_t chunks = kda_max_chunks(tokens, documents); p.grid.group_begin < chunks; p.grid.group_begin += p.grid.group_chunks) {
      make_images(ctx, p.grid, p.in, op.tiles, images);
      with_slice(p.grid, [&](auto n) { launch<T, n()>(ctx, p); });
      std::swap(p.carry_in, p.carry_out);
    }
  });
}

}  // namespace longhaul::cuda
