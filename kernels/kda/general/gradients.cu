// The gradients of a chunk's inputs, one block for a chunk and head. The walks have left the residuals Vt, their gradients dR,
// and the gradient dS' of the state leaving the chunk; S is saved. kernels/kda/README.md derives the formulas:
//   dA = tril(dO Vt^T)   dL = -stril(dR Vt^T)
//   row_q_i = e^{G_i} (S dO_i)  + sum_{j<i} dA_ij k_j E_ij       row_k_i = -e^{G_i} (S dR_i) + sum_{j<i} dL_ij k_j E_ij
//   col_j   = sum_{i>j} (dA_ij scale q_i + beta_i dL_ij k_i) E_ij          out_j = e^{G_C - G_j} (dS' Vt_j)
// All of that is separate for each key channel, once dA and dL are known; 64 channels are done at a time. The pair i = j stays
// out of the gate's gradient.
//
// A thread has rows 4 (t / 16) and the three after it, all in tile t / 64, and channels t % 16, 16 apart.
#include "kernels/kda/general/decay.cuh"
#include "kernels/kda/general/products.cuh"

namespace longhaul::cuda::kda_general {
namespace {

enum Slot : int { kDScores = 4, kDKeys, kPanels };  // dA and dL behind four slots for anything

struct Small {
  TileDecay decay;
  float gate[kKeys];            // rowsum(S dS'), then times e^{G_C}
  float suffix[4][kKeys];       // of a tile, in the gate's gradient
  float prefix[4][kKeys];
  float beta[kChunk];
  float diagonal[kChunk];       // dA_ii
};
constexpr int64_t kSharedBytes = static_cast<int64_t>(sizeof(float)) * kPanels * kPanel + static_cast<int64_t>(sizeof(Small));

template <class T>
struct Gradients {
  Grid grid;
  Inputs<T> in;
  const T* d_o;
  const float* chunk_states;
  const float* residuals;
  const float* d_residuals;
  const float* d_states;
  float *dq, *dk, *dv, *dg, *dbeta;
};

template <class T, KdaTiles kTiles>
class ChunkGradients {
 public:
  __device__ ChunkGradients(const Gradients<T>& p, float* panels, Small& small)
      : p_(p),
        grid_(p.grid),
        panels_(panels),
        small_(small),
        chunk_(p.grid.group_begin + blockIdx.x),
        head_(blockIdx.y),
        token_(p.grid.first_token(chunk_)),
        rows_(p.grid.rows(chunk_)),
        values_(p.grid.scratch_offset(chunk_, head_, kChunk * p.grid.value_dim)) {}

  __device__ void run() {
    if (tid() < kChunk) {
      small_.beta[tid()] = tid() < rows_ ? p_.in.beta[(token_ + tid()) * grid_.heads + head_] : 0.0f;
    }
    scores();
    for (int key_tile = 0; key_tile < grid_.image.key_tiles; ++key_tile) {
      states(key_tile);
      through_scores(key_tile);
      write(key_tile);
    }
    write_dbeta();
  }

 private:
  using Part = float[4][4];  // of a thread: rows row() + r, channels column() + 16 j

  __device__ static int tid() { return static_cast<int>(threadIdx.x); }
  __device__ static int row() { return tid() / 16 * 4; }
  __device__ static int column() { return tid() % 16; }
  __device__ static int tile() { return tid() / 64; }
  __device__ float* slot(int i) const { return panels_ + i * kPanel; }
  __device__ static int at(int r, int j) { return (row() + r) * kPitch + column() + 16 * j; }

  __device__ void load_d_o(int64_t value, float* to) const {
    load_panel(p_.d_o + grid_.value_offset(token_, head_) + value, grid_.heads * grid_.value_dim, rows_, grid_.value_dim - value, to);
  }
  __device__ void load_values(const float* scratch, int64_t value, float* to) const {
    load_panel(scratch + values_ + value, grid_.value_dim, kChunk, grid_.value_dim - value, to);
  }
  __device__ void scores();
  __device__ void write_dv(int64_t value, const float* d_residual);
  __device__ void states(int key_tile);
  __device__ void decay_panels(int key_tile, ColumnDecay& decay);
  __device__ void add_rows_below();
  __device__ void add_columns_above();
  __device__ void add_pairs();
  __device__ void through_scores(int key_tile);
  __device__ void write(int key_tile);
  __device__ void write_dg(int key_tile);
  __device__ void write_dbeta();

  const Gradients<T>& p_;
  const Grid& grid_;
  float* panels_;
  Small& small_;
  int64_t chunk_, head_, token_;
  int rows_;
  int64_t values_;  // of the chunk and head in residuals and d_residuals
  Part row_q_, row_k_, col_, col_diagonal_, out_;
  float dbeta_[4] = {};
};

// dA and dL to their panels, dA's diagonal apart; dv, and the part of dbeta that comes with v.
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::scores() {
  Part d_a = {}, d_l = {};
  for (int64_t value = 0; value < grid_.value_dim; value += kKeys) {
    __syncthreads();
    load_d_o(value, slot(0));
    load_values(p_.d_residuals, value, slot(1));
    load_values(p_.residuals, value, slot(2));
    __syncthreads();
    add_dots(d_a, d_l, slot(0) + row() * kPitch, slot(1) + row() * kPitch, slot(2) + column() * kPitch);
    write_dv(value, slot(1));
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = row() + r, c = column() + 16 * j;
      slot(kDScores)[at(r, j)] = i > c ? d_a[r][j] : 0.0f;
      slot(kDKeys)[at(r, j)] = i > c ? -d_l[r][j] : 0.0f;
      if (i == c) {
        small_.diagonal[i] = d_a[r][j];
      }
    }
  }
}

template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::write_dv(int64_t value, const float* d_residual) {
  const int64_t c = value + 4 * column();
  if (c >= grid_.value_dim) {
    return;
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int i = row() + r;
    if (i < rows_) {
      const float4 x = load4(d_residual + i * kPitch + 4 * column());
      const int64_t offset = grid_.value_offset(token_ + i, head_) + c;
      const float beta = small_.beta[i];
      store4(p_.dv + offset, make_float4(beta * x.x + 0.0f, beta * x.y + 0.0f, beta * x.z + 0.0f, beta * x.w + 0.0f));
      dbeta_[r] = add_dot(x, load4(p_.in.v + offset), dbeta_[r]);
    }
  }
}

// row_q = dO S^T, row_k = -dR S^T, out = Vt dS'^T, before decay; and rowsum(S dS').
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::states(int key_tile) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      row_q_[r][j] = row_k_[r][j] = out_[r][j] = 0;
    }
  }
  const int64_t key = key_tile * kKeys, first_row = key * grid_.value_dim;
  const float* state = p_.chunk_states + grid_.state_offset(chunk_, head_) + first_row;
  const float* d_state = p_.d_states + grid_.scratch_offset(chunk_, head_, grid_.key_dim * grid_.value_dim) + first_row;
  const float* left = panels_ + row() * kPitch;
  const float* right = panels_ + column() * kPitch;
  float gate = 0;
  for (int64_t value = 0; value < grid_.value_dim; value += kKeys) {
    __syncthreads();
    load_d_o(value, slot(0));
    load_values(p_.d_residuals, value, slot(1));
    load_panel(state + value, grid_.value_dim, grid_.key_dim - key, grid_.value_dim - value, slot(2));
    load_panel(d_state + value, grid_.value_dim, grid_.key_dim - key, grid_.value_dim - value, slot(3));
    __syncthreads();
    add_dots(row_q_, row_k_, left, left + kPanel, right + 2 * kPanel);
    const int of_channel = tid() / 4 * kPitch + tid() % 4 * 4;
#pragma unroll
    for (int c = 0; c < kKeys; c += 16) {
      gate = add_dot(load4(slot(2) + of_channel + c), load4(slot(3) + of_channel + c), gate);
    }
    __syncthreads();
    load_values(p_.residuals, value, slot(0));
    __syncthreads();
    add_dots(out_, left, right + 3 * kPanel);
  }
  gate += __shfl_xor_sync(0xffffffffu, gate, 1);
  gate += __shfl_xor_sync(0xffffffffu, gate, 2);
  if (tid() % 4 == 0) {
    small_.gate[tid() / 4] = gate;
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      row_k_[r][j] = -row_k_[r][j];
    }
  }
}

// Slots: scale q from_first; beta k from_first; k to_end; k / from_first (dense tiles).
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::decay_panels(int key_tile, ColumnDecay& decay) {
  const int c = ColumnDecay::channel(), first_row = ColumnDecay::tile() * kTile;
  const int64_t key = key_tile * kKeys + c;
  float q[kTile], k[kTile], to_end[kTile];
  load_column(grid_, p_.in.q, token_, rows_, head_, key, q);
  load_column(grid_, p_.in.k, token_, rows_, head_, key, k);
  decay.to_end(to_end);
  float from_first = 1;
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    const int element = (first_row + r) * kPitch + c;
    from_first = r == 0 ? 1.0f : from_first * decay.alpha[r];
    slot(0)[element] = p_.in.scale * q[r] * from_first;
    slot(1)[element] = small_.beta[first_row + r] * k[r] * from_first;
    slot(2)[element] = k[r] * to_end[r];
    if constexpr (kTiles == KdaTiles::Dense) {
      slot(3)[element] = k[r] * (1.0f / from_first);
    }
  }
}

// The tiles before the thread's own in the manner of Horner: walking tile by tile, the sum so far decays by one tile and the
// next tile's product is added. So all factors stay <= 1, and the sums start from what came through the state.
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::add_rows_below() {
  const int own = tile();
  for (int j = 0; j <= own; ++j) {
    const float* decay = j < own ? small_.decay.total[j] : small_.decay.first[own];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float factor = decay[column() + 16 * c];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        row_q_[r][c] *= factor;
        row_k_[r][c] *= factor;
      }
    }
    if (j == own && kTiles == KdaTiles::Pairwise) {
      return;
    }
    const float* keys = (j < own ? slot(2) : slot(3)) + j * kTile * kPitch + column();
    const float* d_a = slot(kDScores) + row() * kPitch + j * kTile;
    const float* d_l = slot(kDKeys) + row() * kPitch + j * kTile;
#pragma unroll 1
    for (int p = 0; p < kTile; p += 4) {
      float4 right[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float* key = keys + p * kPitch + 16 * c;
        right[c] = make_float4(key[0], key[kPitch], key[2 * kPitch], key[3 * kPitch]);
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float4 a = load4(d_a + r * kPitch + p), l = load4(d_l + r * kPitch + p);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          row_q_[r][c] = add_dot(a, right[c], row_q_[r][c]);
          row_k_[r][c] = add_dot(l, right[c], row_k_[r][c]);
        }
      }
    }
  }
}

// The tiles after the thread's own, from the last one back; and with dense tiles the own one, apart.
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::add_columns_above() {
  const int own = tile();
  const auto add_tile = [&](int i, Part& part) {
#pragma unroll 2
    for (int m = i * kTile; m < (i + 1) * kTile; ++m) {
      const float4 d_a = load4(slot(kDScores) + m * kPitch + row()), d_l = load4(slot(kDKeys) + m * kPitch + row());
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float q = slot(0)[m * kPitch + column() + 16 * c], k = slot(1)[m * kPitch + column() + 16 * c];
        part[0][c] = fmaf(d_l.x, k, fmaf(d_a.x, q, part[0][c]));
        part[1][c] = fmaf(d_l.y, k, fmaf(d_a.y, q, part[1][c]));
        part[2][c] = fmaf(d_l.z, k, fmaf(d_a.z, q, part[2][c]));
        part[3][c] = fmaf(d_l.w, k, fmaf(d_a.w, q, part[3][c]));
      }
    }
  };
  const auto scale = [&](const float* decay) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float factor = decay[column() + 16 * c];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        col_[r][c] *= factor;
      }
    }
  };
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      col_[r][c] = col_diagonal_[r][c] = 0;
    }
  }
  for (int i = 3; i > own; --i) {
    scale(small_.decay.rest[i]);
    add_tile(i, col_);
    scale(small_.decay.first[i]);
  }
  if constexpr (kTiles == KdaTiles::Dense) {
    add_tile(own, col_diagonal_);
  }
}

// The pairs of a diagonal tile with unbounded gates, each decayed on its own. Slots: scale q, k, alpha.
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::add_pairs() {
  const int begin = tile() * kTile, end = begin + kTile;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const float *q = slot(0) + column() + 16 * c, *k = slot(1) + column() + 16 * c, *alpha = slot(2) + column() + 16 * c;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int own = row() + r;
      const float *d_a = slot(kDScores) + own * kPitch, *d_l = slot(kDKeys) + own * kPitch;
      float sum_q = 0, sum_k = 0, sum = 0;
      for (int j = begin; j < own; ++j) {
        const float factor = alpha[(j + 1) * kPitch], key = k[j * kPitch];
        sum_q = fmaf(d_a[j], key, sum_q) * factor;
        sum_k = fmaf(d_l[j], key, sum_k) * factor;
      }
      for (int i = end - 1; i > own; --i) {
        const float d_key = small_.beta[i] * slot(kDKeys)[i * kPitch + own];
        sum = fmaf(d_key, k[i * kPitch], fmaf(slot(kDScores)[i * kPitch + own], q[i * kPitch], sum)) * alpha[i * kPitch];
      }
      row_q_[r][c] += sum_q;
      row_k_[r][c] += sum_k;
      col_[r][c] += sum;
    }
  }
}

// Completes row_q, row_k, col and out. Leaves scale q and k in slots 0 and 1.
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::through_scores(int key_tile) {
  const int c = ColumnDecay::channel(), first_row = ColumnDecay::tile() * kTile;
  const int64_t key = key_tile * kKeys + c;
  ColumnDecay decay;
  decay.load(grid_, p_.in.g, token_, rows_, head_, key);
  decay.share(small_.decay);
  __syncthreads();  // also: states() is done with the slots
  decay_panels(key_tile, decay);
  __syncthreads();
  add_rows_below();
  add_columns_above();
  __syncthreads();
  {
    float q[kTile], k[kTile], to_end[kTile];
    load_column(grid_, p_.in.q, token_, rows_, head_, key, q);
    load_column(grid_, p_.in.k, token_, rows_, head_, key, k);
    decay.load(grid_, p_.in.g, token_, rows_, head_, key);
    decay.to_end(to_end);
    float from_first = 1;
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      const int element = (first_row + r) * kPitch + c;
      from_first = r == 0 ? 1.0f : from_first * decay.alpha[r];
      slot(0)[element] = p_.in.scale * q[r];
      slot(1)[element] = k[r];
      slot(2)[element] = from_first;
      slot(3)[element] = to_end[r];
    }
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float after = small_.decay.after(tile(), column() + 16 * j);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float from_first = slot(2)[at(r, j)], to_end = slot(3)[at(r, j)];
      row_q_[r][j] *= from_first;
      row_k_[r][j] *= from_first;
      out_[r][j] *= to_end * after;
      col_[r][j] *= to_end;
      if constexpr (kTiles == KdaTiles::Dense) {
        col_[r][j] += (1.0f / from_first) * col_diagonal_[r][j];
      }
    }
  }
  if constexpr (kTiles == KdaTiles::Pairwise) {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kTile; ++r) {
      slot(2)[(first_row + r) * kPitch + c] = decay.alpha[r];
    }
    __syncthreads();
    add_pairs();
  }
}

template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::write(int key_tile) {
  __syncthreads();  // all are done with slots 2 and 3
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int i = row() + r;
    const float beta = small_.beta[i], diagonal = small_.diagonal[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t c = key_tile * kKeys + column() + 16 * j;
      const float q = slot(0)[at(r, j)], k = slot(1)[at(r, j)], from_row = beta * row_k_[r][j];
      if (i < rows_ && c < grid_.key_dim) {
        const int64_t offset = grid_.key_offset(token_ + i, head_) + c;
        p_.dq[offset] = p_.in.scale * (row_q_[r][j] + diagonal * k) + 0.0f;
        p_.dk[offset] = ((from_row + col_[r][j]) + (out_[r][j] + diagonal * q)) + 0.0f;
      }
      slot(2)[at(r, j)] = q * row_q_[r][j] + k * (from_row - col_[r][j]);
      slot(3)[at(r, j)] = k * out_[r][j];
      dbeta_[r] = fmaf(k, row_k_[r][j], dbeta_[r]);
    }
  }
  __syncthreads();
  write_dg(key_tile);
}

// dg_t gathers every decay factor that contains row t's: rows from t on that carry e^{+G}, minus columns from t on that carry
// e^{-G} (slot 2, summed from the back), plus what leaves with the state (slot 3, summed from the front over rows before t,
// instead of the chunk's total minus the rest: nothing cancels). Tiles first, then rows.
template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::write_dg(int key_tile) {
  const int c = ColumnDecay::channel(), own = ColumnDecay::tile();
  const int64_t key = key_tile * kKeys + c;
  const float *terms = slot(2) + own * kTile * kPitch + c, *leaving = slot(3) + own * kTile * kPitch + c;
  float suffix = 0, prefix = 0;
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    suffix += terms[(kTile - 1 - r) * kPitch];
    prefix += leaving[r * kPitch];
  }
  small_.suffix[own][c] = suffix;
  small_.prefix[own][c] = prefix;
  __syncthreads();
  suffix = 0;
  for (int m = 3; m > own; --m) {
    suffix += small_.suffix[m][c];
  }
  prefix = small_.decay.before(3, c) * small_.decay.total[3][c] * small_.gate[c];
  for (int m = 0; m < own; ++m) {
    prefix += small_.prefix[m][c];
  }
  float later[kTile];
#pragma unroll
  for (int r = kTile - 1; r >= 0; --r) {
    suffix += terms[r * kPitch];
    later[r] = suffix;
  }
  const bool inside = key < grid_.key_dim;
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    const int i = own * kTile + r;
    if (inside && i < rows_) {
      p_.dg[grid_.key_offset(token_ + i, head_) + key] = (later[r] + prefix) + 0.0f;
    }
    prefix += leaving[r * kPitch];
  }
}

template <class T, KdaTiles kTiles>
__device__ void ChunkGradients<T, kTiles>::write_dbeta() {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    float sum = dbeta_[r];
#pragma unroll
    for (int distance = 8; distance > 0; distance /= 2) {  // over the 16 threads of a row
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    if (column() == 0 && row() + r < rows_) {
      p_.dbeta[(token_ + row() + r) * grid_.heads + head_] = sum + 0.0f;
    }
  }
}

template <class T, KdaTiles kTiles>
__global__ void __launch_bounds__(kThreads, 2) gradients_kernel(Gradients<T> p) {
  extern __shared__ float4 shared[];
  if (p.grid.group_begin + blockIdx.x >= p.grid.num_chunks()) {
    return;
  }
  float* panels = reinterpret_cast<float*>(shared);
  ChunkGradients<T, kTiles>(p, panels, *reinterpret_cast<Small*>(panels + kPanels * kPanel)).run();
}

}  // namespace

template <class T>
void make_gradients(ExecContext& ctx, const Grid& grid, const KdaBackward& op, const KdaScratch& scratch) {
  const Gradients<T> p{.grid = grid, .in = inputs_of<T>(op), .d_o = gpu::typed<T>(op.d_o), .chunk_states = op.chunk_states.data<float>(),
                       .residuals = scratch.residuals.data<float>(), .d_residuals = scratch.d_residuals.data<float>(),
                       .d_states = scratch.d_states.data<float>(), .dq = op.dq.data<float>(), .dk = op.dk.data<float>(),
                       .dv = op.dv.data<float>(), .dg = op.dg.data<float>(), .dbeta = op.dbeta.data<float>()};
  const auto launch = [&](auto* kernel) {
    gpu::allow_shared(kernel, kSharedBytes);
    const dim3 blocks(static_cast<unsigned>(grid.group_chunks), static_cast<unsigned>(grid.heads));
    kernel<<<blocks, kThreads, static_cast<size_t>(kSharedBytes), gpu::stream_of(ctx)>>>(p);
    LH_CHECK_LAUNCH(ctx, "kda gradients");
  };
  if (op.tiles == KdaTiles::Dense) {
    launch(gradients_kernel<T, KdaTiles::Dense>);
  } else {
    launch(gradients_kernel<T, KdaTiles::Pairwise>);
  }
}

template void make_gradients<float>(ExecContext&, const Grid&, const KdaBackward&, const KdaScratch&);
template void make_gradients<BF16>(ExecContext&, const Grid&, const KdaBackward&, const KdaScratch&);

}  // namespace longhaul::cuda::kda_general
