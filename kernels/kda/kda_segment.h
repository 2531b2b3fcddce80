// What a stretch of tokens does to the state: S_out = transition S_in + final_state. The delta rule with decay is affine in the state
// (Kimi Linear, arXiv:2510.26692, eq. 1: S <- (I - beta k k^T) Diag(e^{g}) S + beta k v^T), so the stretches of a sequence can be worked
// through at once, and their pairs merged from the left: (M2, E2) after (M1, E1) is (M2 M1, M2 E1 + E2). Context parallelism
// exchanges these pairs between ranks and gives each the state that enters its stretch.
#pragma once

#include "kernels/kda/kda.h"

namespace longhaul {

struct KdaSegment {
  TensorView k;            // [tokens, heads, key_dim], L2-normalised
  TensorView v;            // [tokens, heads, value_dim]
  TensorView g;            // [tokens, heads, key_dim], log-decay <= 0, accurate type
  TensorView beta;         // [tokens, heads], accurate type
  TensorView cu_seqlens;   // i64 [documents + 1]; each document is a stretch of its own
  KdaTiles tiles = KdaTiles::Dense;
  TensorView transition;   // [documents, heads, key_dim, key_dim], accurate type
  TensorView final_state;  // [documents, heads, key_dim, value_dim], accurate type: from a state of zero
};
// Twice kda_forward without its queries: once with an initial state of zero, once with values of zero from the identity. Scratch: that
// of kda_forward, two [tokens, heads, max(key_dim, value_dim)] and the identities.
void kda_segment(ExecContext& ctx, const KdaSegment& op);

}  // namespace longhaul
