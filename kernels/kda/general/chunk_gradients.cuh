// The gradients of a chunk's inputs, one block for a chunk and head. The walks have left the residuals Vt, their gradients dR,
// and the gradient dS' of the state leaving the chunk; S is saved. kernels/kda/README.md derives the formulas:
//   dA = tril(dO Vt^T)   dL = -stril(dR Vt^T)
//   row_q_i = e^{G_i} (S dO_i)  + sum_{j<i} dA_ij k_j E_ij       row_k_i = -e^{G_i} (S dR_i) + sum_{j<i} dL_ij k_j E_ij
//   col_j   = sum_{i>j} (dA_ij scale q_i + beta_i dL_ij k_i) E_ij          out_j = e^{G_C - G_j} (dS' Vt_j)
// All of that is separate for each key channel, once dA and dL are known; 64 channels are done at a time. The pair i = j stays
// out of the gate's gradient.
//
// A thread has rows 4 (t / 16) and the three after it, all in tile t / 64, and channels t % 16, 16 apart.
#pragma once

#include "kernels/kda/general/decay.cuh"
#include "kernels/kda/general/products.cuh"

namespace longhaul::cuda::kda_general {

enum Slot : int { kDScores = 4, kDKeys, kPanels };  // dA and dL behind four slots for anything

struct GradientSmall {
  TileDecay decay;
  float gate[kKeys];            // rowsum(S dS'), then times e^{G_C}
  float suffix[4][kKeys];       // of a tile, in the gate's gradient
  float prefix[4][kKeys];
  float beta[kChunk];
  float diagonal[kChunk];       // dA_ii
};
constexpr int64_t kSharedBytes = static_cast<int64_t>(sizeof(float)) * kPanels * kPanel + static_cast<int64_t>(sizeof(GradientSmall));

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
  __device__ ChunkGradients(const Gradients<T>& p, float* panels, GradientSmall& small)
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
  GradientSmall& small_;
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
    PanelInFlight residual;
    residual.load(p_.residuals + values_ + value, grid_.value_dim, kChunk, grid_.value_dim - value);
    add_dots(row_q_, row_k_, left, left + kPanel, right + 2 * kPanel);
    const int of_channel = tid() / 4 * kPitch + tid() % 4 * 4;
#pragma unroll
    for (int c = 0; c < kKeys; c += 16) {
      gate = add_dot(load4(slot(2) + of_channel + c), load4(slot(3) + of_channel + c), gate);
    }
    __syncthreads();
    residual.store(slot(0));
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

}  // namespace longhaul::cuda::kda_general
