// Kimi Delta Attention: gated delta rule with a decay per key channel (Kimi Linear, arXiv:2510.26692, eq. 1 and 6-9).
// Per document and head, with state S [key_dim, value_dim]:
//   S <- Diag(e^{g_t}) S;   S <- S + beta_t k_t (v_t - S^T k_t)^T;   o_t = S^T (scale * q_t)
// Decay comes first, the delta rule reads the decayed state, and o_t reads the state after the update.
// kda_forward computes the chunkwise WY form (chunks of 64, tiles of 16); kda_recurrent_forward is the definition itself
// and its oracle. State resets at every document start. Outputs at t depend on nothing after t, bitwise.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

inline constexpr int64_t kKdaChunk = 64;
inline constexpr int64_t kKdaTile = 16;

// How tiles on the diagonal form exp(G_i - G_j).
enum class KdaTiles : uint8_t {
  Dense,     // two factors around a causal anchor, one matrix product; needs sum of |g| over a tile below 80
  Pairwise,  // each pair on its own; for unbounded (softplus) decay
};

struct KdaForward {
  TensorView q;              // [tokens, heads, key_dim], L2-normalised
  TensorView k;              // [tokens, heads, key_dim], L2-normalised
  TensorView v;              // [tokens, heads, value_dim]
  TensorView g;              // [tokens, heads, key_dim], log-decay <= 0, accurate type
  TensorView beta;           // [tokens, heads], accurate type
  TensorView cu_seqlens;     // i64 [documents + 1]
  double scale = 1;          // usually key_dim^-1/2
  KdaTiles tiles = KdaTiles::Dense;
  TensorView initial_state;  // [documents, heads, key_dim, value_dim], accurate type; absent: zero
  TensorView o;              // [tokens, heads, value_dim]
  TensorView final_state;    // [documents, heads, key_dim, value_dim], accurate type; absent: not wanted
  TensorView chunk_states;   // [kda_state_rows, heads, key_dim, value_dim], accurate type: the state entering each chunk,
                             // saved for backward; absent: inference only. On a Hopper GPU what it holds is for
                             // kda_backward of the same build alone (kda_hopper.h)
};
void kda_forward(ExecContext& ctx, const KdaForward& op);
// Same arguments and results; chunk_states must be absent.
void kda_recurrent_forward(ExecContext& ctx, const KdaForward& op);

struct KdaBackward {
  TensorView d_o;              // [tokens, heads, value_dim]
  TensorView q, k;             // [tokens, heads, key_dim]
  TensorView v;                // [tokens, heads, value_dim]
  TensorView g;                // [tokens, heads, key_dim]
  TensorView beta;             // [tokens, heads]
  TensorView cu_seqlens;       // i64 [documents + 1]
  double scale = 1;
  KdaTiles tiles = KdaTiles::Dense;
  TensorView chunk_states;     // as written by kda_forward
  TensorView dfinal_state;     // [documents, heads, key_dim, value_dim]; absent: zero
  TensorView dq, dk;           // [tokens, heads, key_dim], accurate type, overwritten
  TensorView dv;               // [tokens, heads, value_dim], accurate type, overwritten
  TensorView dg;               // [tokens, heads, key_dim], accurate type, overwritten
  TensorView dbeta;            // [tokens, heads], accurate type, overwritten
  TensorView dinitial_state;   // [documents, heads, key_dim, value_dim]; absent: not wanted
};
void kda_backward(ExecContext& ctx, const KdaBackward& op);

// Upper bound of the number of chunks of `tokens` tokens in `documents` documents; chunks never straddle documents, and
// the actual count is sum_d ceil(length_d / kKdaChunk). Rows beyond the actual count are unspecified.
[[nodiscard]] constexpr int64_t kda_max_chunks(int64_t tokens, int64_t documents) {
  return (tokens + kKdaChunk - 1) / kKdaChunk + documents;
}
// Rows of chunk_states: one a chunk. With 64 channels the Hopper version needs a 64th more for the units of its values.
[[nodiscard]] constexpr int64_t kda_state_rows(int64_t tokens, int64_t documents, int64_t key_dim) {
  const int64_t chunks = kda_max_chunks(tokens, documents);
  return key_dim == 64 ? chunks + (chunks + 63) / 64 : chunks;
}

}  // namespace longhaul
