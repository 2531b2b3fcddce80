// Logits of a router that favours some experts, as seen by fresh tokens at every step, while its preferences drift as
// those of a router in training do. No model: what is under test is the balancing alone.
//
//   logit(step, token, e) = skew * (cos(drift * step) a_e + sin(drift * step) b_e) + logistic noise
//
// with a_e and b_e standard normal: at every step the offsets have the standard deviation `skew`.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor_view.h"

namespace longhaul {

class SyntheticRouter {
 public:
  struct Options {
    int64_t experts = 0;
    double skew = 1.5;    // logits
    double drift = 0.005; // radians a step
    uint64_t seed = 1234;
  };
  explicit SyntheticRouter(const Options& options);

  // logits f32 [tokens, experts] of tokens [first_token, first_token + tokens) of a step: a function of seed, step and
  // token alone, so that all variants of a comparison see the same.
  void fill(int64_t step, int64_t first_token, TensorView logits) const;

 private:
  Options options_;
  std::vector<double> a_, b_;  // [experts]
};

}  // namespace longhaul
