// Statistics of Quantile Balancing (Kimi K3, arXiv:2607.24653, appendix D): for each expert j a histogram over tokens of
// r_ij = cutoff_i - score_ij on uniform bins of [low, high]. Integer counts: the sum over ranks and micro-batches does not
// depend on order or layout. Values outside go to the first or last bin.
#pragma once

#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct RouteHistogram {
  TensorView scores;  // [tokens, experts], accurate type, unbiased sigmoid scores
  TensorView cutoff;  // [tokens], accurate type, the (top_k + 1)-th largest biased score
  TensorView experts; // i32 [tokens, top_k]: for the load counts
  double low = -1;    // min(bias) - 1
  double high = 1;    // max(bias) + 1
  TensorView counts;  // i64 [experts, bins], accumulated
  TensorView load;    // i64 [experts], tokens routed to each expert, accumulated
};
void route_histogram(ExecContext& ctx, const RouteHistogram& op);

}  // namespace longhaul
