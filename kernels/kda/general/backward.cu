// Backward: the residuals of the delta rule from the saved states (all chunks at once), the walk over chunks in reverse that
// carries the gradient dS of the state, and then gradients.cu. For a chunk entered by S and left with gradient dS':
//   dVt = A^T dO + (k e^{G_C - G}) dS'   dR = T^T dVt   dS = e^{G_C} dS' + (q e^G)^T dO - (beta k e^G)^T dR
#include "kernels/kda/general/products.cuh"
#include "kernels/kda/general/state.cuh"
#include "kernels/kda/general/stream.cuh"

namespace longhaul::cuda {
namespace kda_general {
namespace {

template <class T>
struct Backward {
  Grid grid;
  Inputs<T> in;
  const T* d_o;
  const float* images;
  const float* chunk_states;
  float* residuals;    // [group_chunks, heads, 64, value_dim] Vt
  float* d_residuals;  // the same of dR
  float* d_states;     // [group_chunks, heads, key_dim, value_dim] dS'
  const float* dfinal_state;
  float* carry_in;     // [heads, key_dim, value_dim]
  float* carry_out;
  float* dinitial_state;
};

// What a block of both kernels works on.
template <int N>
struct Place {
  int64_t head, slice;
  int row, column;  // of the thread
  int64_t value;    // of the thread's first column in the tensor
  bool has_value;

  __device__ explicit Place(const Grid& grid) {
    const auto slices = gpu::ceil_div(grid.value_dim, N);
    head = blockIdx.y / slices;
    slice = blockIdx.y % slices;
    row = Share<N>::row();
    column = Share<N>::column();
    value = slice * N + column;
    has_value = value < grid.value_dim;
  }
  // The thread's part of [64, N] to [64, value_dim].
  template <int R>
  __device__ void store(const float (&x)[R][4], float* to, int64_t value_dim) const {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (has_value) {
        store4(to + (row + r) * value_dim + value, make_float4(x[r][0], x[r][1], x[r][2], x[r][3]));
      }
    }
  }
  template <int R>
  __device__ void share(const float (&x)[R][4], const float (&factor)[R], float* to) const {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const float f = factor[r];
      store4(to + (row + r) * N + column, make_float4(f * x[r][0], f * x[r][1], f * x[r][2], f * x[r][3]));
    }
  }
};

template <class T, int N>
__global__ void __launch_bounds__(kThreads, 2) residual_kernel(Backward<T> p) {
  constexpr int R = Share<N>::kRows;
  extern __shared__ float4 shared[];
  const Grid& grid = p.grid;
  const Place<N> at(grid);
  const int64_t chunk = grid.group_begin + blockIdx.x;
  if (chunk >= grid.num_chunks()) {
    return;
  }
  const int key_tiles = grid.image.key_tiles;
  float* memory = reinterpret_cast<float*>(shared);
  const StateSlice<N> state{memory, key_tiles * kKeys, grid.key_dim, grid.value_dim, at.slice * N};
  float* residual = memory + key_tiles * kKeys * N;
  const float* image = p.images + grid.scratch_offset(chunk, at.head, grid.image.floats());
  TileStream<ResidualOrder> tiles({grid.image}, residual + kChunk * N, image, 0, 1);
  state.load(p.chunk_states + grid.state_offset(chunk, at.head));
  const int64_t token = grid.first_token(chunk) + at.row;
  const int rows = grid.rows(chunk) - at.row;
  float sum[R][4] = {};
  for (int t = 0; t < key_tiles; ++t) {
    add_rows(sum, tiles.next() + at.row * kPitch, state.data + t * kKeys * N + at.column, N, 0, grid.keys_of(t));
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const bool inside = r < rows && at.has_value;
    const float4 v = inside ? load4(p.in.v + grid.value_offset(token + r, at.head) + at.value) : make_float4(0, 0, 0, 0);
    const float beta = inside ? p.in.beta[(token + r) * grid.heads + at.head] : 0.0f;
    const float4 x = make_float4(v.x - sum[r][0], v.y - sum[r][1], v.z - sum[r][2], v.w - sum[r][3]);
    store4(residual + (at.row + r) * N + at.column, make_float4(beta * x.x, beta * x.y, beta * x.z, beta * x.w));
  }
  float solved[R][4] = {};
  add_lower(solved, tiles.next() + at.row * kPitch, residual + at.column, N, at.row);
  at.store(solved, p.residuals + grid.scratch_offset(chunk, at.head, kChunk * grid.value_dim), grid.value_dim);
}

// What the thread's rows of a chunk bring into the walk, loaded a chunk ahead.
template <int R>
struct Rows {
  float4 d_o[R];
  float beta[R];

  template <class T, int N>
  __device__ void load(const Backward<T>& p, const Place<N>& at, const Walk& walk, int64_t chunk) {
    const Grid& grid = p.grid;
    const int64_t token = walk.token(chunk) + at.row;
    const int rows = walk.rows(chunk) - at.row;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const bool inside = r < rows && at.has_value;
      beta[r] = inside ? p.in.beta[(token + r) * grid.heads + at.head] : 0.0f;
      d_o[r] = inside ? load4(p.d_o + grid.value_offset(token + r, at.head) + at.value) : make_float4(0, 0, 0, 0);
    }
  }
};

template <class T, int N>
__global__ void __launch_bounds__(kThreads, 2) reverse_kernel(Backward<T> p) {
  constexpr int R = Share<N>::kRows;
  extern __shared__ float4 shared[];
  const Grid& grid = p.grid;
  const Place<N> at(grid);
  const Walk walk(grid, blockIdx.x);
  const int key_tiles = grid.image.key_tiles;
  float* memory = reinterpret_cast<float*>(shared);
  const StateSlice<N> d_state{memory, key_tiles * kKeys, grid.key_dim, grid.value_dim, at.slice * N};
  const auto of_document = [&](auto* states) { return states == nullptr ? states : states + grid.state_offset(walk.document, at.head); };
  if (walk.has_no_tokens() && grid.group_begin == 0 && p.dinitial_state != nullptr) {
    d_state.load(of_document(p.dfinal_state));
    __syncthreads();
    d_state.store(of_document(p.dinitial_state));
  }
  if (walk.has_no_chunks_here()) {
    return;
  }
  float *d_o = memory + key_tiles * kKeys * N, *d_written = d_o + kChunk * N, *d_residual = d_written + kChunk * N;
  const int64_t image = grid.image.floats();
  TileStream<ReverseOrder> tiles({grid.image}, d_residual + kChunk * N, p.images + grid.scratch_offset(walk.end - 1, at.head, image),
                                 grid.heads * image, walk.end - walk.begin);
  d_state.load(walk.end == walk.last ? of_document(p.dfinal_state) : static_cast<const float*>(p.carry_in + grid.state_offset(0, at.head)));
  const int from = at.row & ~3;  // the first row of A^T and T^T that is not zero
  Rows<R> ahead;
  ahead.load(p, at, walk, walk.end - 1);
  for (int64_t chunk = walk.end - 1; chunk >= walk.begin; --chunk) {
    DecayReader<R> total(p.images + grid.scratch_offset(chunk, at.head, image) + grid.image.total() + at.row);
    const Rows<R> here = ahead;
    __syncthreads();
    d_state.store(p.d_states + grid.scratch_offset(chunk, at.head, grid.key_dim * grid.value_dim));
#pragma unroll
    for (int r = 0; r < R; ++r) {
      store4(d_o + (at.row + r) * N + at.column, here.d_o[r]);
    }
    if (chunk > walk.begin) {
      ahead.load(p, at, walk, chunk - 1);
    }
    float sum[R][4] = {};
    add_transposed<1>(sum, tiles.next() + at.row, d_o + at.column, N, from);
    for (int t = 0; t < key_tiles; ++t) {
      add_rows(sum, tiles.next() + at.row * kPitch, d_state.data + t * kKeys * N + at.column, N, 0, grid.keys_of(t));
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      store4(d_written + (at.row + r) * N + at.column, make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]));
    }
    float solved[R][4] = {};
    add_transposed<1>(solved, tiles.next() + at.row, d_written + at.column, N, from);
    at.store(solved, p.d_residuals + grid.scratch_offset(chunk, at.head, kChunk * grid.value_dim), grid.value_dim);
    at.share(solved, here.beta, d_residual);
    for (int t = 0; t < key_tiles; ++t) {
      float decay[R], next[R][4];
      total.take(t, key_tiles, decay);
      const float *k_start = tiles.next() + at.row, *q_start = tiles.next() + at.row;
      if (at.row >= grid.keys_of(t)) {
        continue;
      }
      float* target = d_state.data + (t * kKeys + at.row) * N + at.column;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const float4 x = load4(target + r * N);
        next[r][0] = decay[r] * x.x, next[r][1] = decay[r] * x.y, next[r][2] = decay[r] * x.z, next[r][3] = decay[r] * x.w;
      }
      add_transposed<1>(next, q_start, d_o + at.column, N, 0);
      add_transposed<-1>(next, k_start, d_residual + at.column, N, 0);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        store4(target + r * N, make_float4(next[r][0], next[r][1], next[r][2], next[r][3]));
      }
    }
  }
  __syncthreads();
  if (walk.begin > walk.first) {
    d_state.store(p.carry_out + grid.state_offset(0, at.head));
  } else if (p.dinitial_state != nullptr) {
    d_state.store(of_document(p.dinitial_state));
  }
}

// Both kernels, one after the other.
template <class T, int N>
void launch(ExecContext& ctx, const Backward<T>& p) {
  const auto heads_and_slices = static_cast<unsigned>(p.grid.heads * gpu::ceil_div(p.grid.value_dim, N));
  const auto run = [&](auto* kernel, int64_t blocks, int64_t panels) {
    const int64_t floats = int64_t{p.grid.image.key_tiles} * kKeys * N + panels * kChunk * N + TileStream<ReverseOrder>::kFloats;
    const int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
    gpu::allow_shared(kernel, bytes);
    kernel<<<dim3(static_cast<unsigned>(blocks), heads_and_slices), kThreads, static_cast<size_t>(bytes), gpu::stream_of(ctx)>>>(p);
    LH_CHECK_LAUNCH(ctx, "kda_backward");
  };
  run(residual_kernel<T, N>, p.grid.group_chunks, 1);
  run(reverse_kernel<T, N>, p.grid.documents, 3);
}

}  // namespace
}  // namespace kda_general

void kda_backward(ExecContext& ctx, const KdaBackward& op, const KdaScratch& scratch) {
  using namespace kda_general;
  const int64_t tokens = op.q.size(0), documents = op.cu_seqlens.size(0) - 1;
  if (documents == 0 || op.q.size(1) == 0) {
    return;
  }
  make_chunks(ctx, op.cu_seqlens, tokens, scratch);
  gpu::dispatch_compute(op.q.dtype(), "kda_backward", [&](auto zero) {
    using T = decltype(zero);
    auto* images = scratch.images.data<float>();
    const int64_t carry = op.q.size(1) * op.q.size(2) * op.v.size(2);
    Backward<T> p{.grid = grid_of(op, scratch), .in = inputs_of<T>(op), .d_o = gpu::typed<T>(op.d_o), .images = images,
                  .chunk_states = op.chunk_states.data<float>(), .residuals = scratch.residuals.data<float>(),
                  .d_residuals = scratch.d_residuals.data<float>(), .d_states = scratch.d_states.data<float>(),
                  .dfinal_state = optional(op.dfinal_state), .carry_in = scratch.carry.data<float>(),
                  .carry_out = scratch.carry.data<float>() + carry, .dinitial_state = optional(op.dinitial_state)};
    const int64_t groups = gpu::ceil_div(kda_max_chunks(tokens, documents), p.grid.group_chunks);
    for (int64_t group = groups - 1; group >= 0; --group) {
      p.grid.group_begin = group * p.grid.group_chunks;
      make_images(ctx, p.grid, p.in, op.tiles, images);
      with_slice(p.grid, [&](auto n) { launch<T, n()>(ctx, p); });
      make_gradients<T>(ctx, p.grid, op, scratch);
      std::swap(p.carry_in, p.carry_out);
    }
  });
}

}  // namespace longhaul::cuda
