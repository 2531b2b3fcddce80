// Stable LatentMoE (Kimi K3, arXiv:2607.24653, eq. 11-13; LatentMoE: arXiv:2601.18089):
//   routes, p = router(x Wr^T + selection bias);  z = x Wdown^T
//   u = sum_{j in routes} p_j W2_j f(W1_j z, W3_j z);  y = RMSNorm(u) Wup^T + SharedMlp(x)
// The router reads the full width; only the latent z travels to the experts. The norm follows the complete combine.
// Kimi Linear's mixture is the same with z = x, u added directly, and no norm. Tokens are never dropped.
//
// Experts are split over the ranks of the expert group: rank r owns experts [r E/R, (r+1) E/R).
#pragma once

#include <optional>

#include "comm/group.h"
#include "device/exec_context.h"
#include "layers/mlp/mlp_layer.h"
#include "layers/moe/expert_exchange.h"
#include "layers/parameter.h"

namespace longhaul {

// The state of one router that is not a parameter, and where its statistics go. Filled by the owner of the balance.
struct RouterState {
  TensorView bias;            // [experts], accurate type; added for the selection only
  TensorView forced_experts;  // i32 [tokens, top_k]; present: these routes are taken
  // Statistics of Quantile Balancing; absent when not training, so that nothing is counted.
  TensorView counts;  // i64 [experts, bins], accumulated
  TensorView load;    // i64 [experts], accumulated
  double low = -1, high = 1;  // range of the histogram
};

struct MoeLayer {
  struct Options {
    int64_t hidden = 0;
    int64_t num_experts = 0;
    int64_t top_k = 1;
    int64_t expert_intermediate = 0;  // moe_intermediate_size
    int64_t latent = 0;               // routed_expert_hidden_size; 0: experts work on the full width
    bool latent_norm = true;          // RMSNorm between combine and up-projection
    int64_t shared_intermediate = 0;  // num_shared_experts * moe_intermediate_size; 0: none
    double scaling = 1;               // routed_scaling_factor
    Activation activation;
    double norm_eps = 1e-5;
    double init_stddev = 0.02;
    DType dtype = DType::F32;

    [[nodiscard]] int64_t expert_width() const noexcept { return latent > 0 ? latent : hidden; }
    [[nodiscard]] MlpLayer shared() const {
      return {{.hidden = hidden, .intermediate = shared_intermediate, .activation = activation, .init_stddev = init_stddev, .dtype = dtype}};
    }
  };

  template <class T>
  struct Weights {
    T gate;                   // [experts, hidden]
    T down_proj, norm, up_proj;  // [latent, hidden], [latent], [hidden, latent]; with latent
    MlpLayer::Weights<T> shared;
    T w1, w3;  // [local experts, expert_intermediate, expert width]: gate and up
    T w2;      // [local experts, expert width, expert_intermediate]: down
  };
  template <class W, class F>
  static void for_each(const Options& options, W& w, F&& f) {
    f("gate.weight", w.gate);
    if (options.latent > 0) {
      f("routed_expert_down_proj.weight", w.down_proj);
      if (options.latent_norm) {
        f("routed_expert_norm.weight", w.norm);
      }
      f("routed_expert_up_proj.weight", w.up_proj);
    }
    if (options.shared_intermediate > 0) {
      f("shared_experts.gate_proj.weight", w.shared.gate_proj);
      f("shared_experts.up_proj.weight", w.shared.up_proj);
      f("shared_experts.down_proj.weight", w.shared.down_proj);
    }
    f("experts.w1.weight", w.w1);
    f("experts.w2.weight", w.w2);
    f("experts.w3.weight", w.w3);
  }

  struct Saved {
    TensorView scores;       // [tokens, experts]
    TensorView experts;      // i32 [tokens, top_k]
    TensorView weights;      // [tokens, top_k]
    TensorView z;            // [tokens, expert width]; the layer's input x without latent
    TensorView row_of_slot;  // i64 [tokens * top_k]
    ExpertExchange::Plan plan;
    TensorView rows;            // [local rows, expert width], expert inputs
    TensorView gate, up;        // [local rows, expert_intermediate]
    TensorView activated;       // [local rows, expert_intermediate]
    TensorView expert_out;      // [tokens * top_k, expert width], back home, in expert order
    TensorView combined;        // [tokens, expert width], before the norm
    TensorView inv_rms;         // [tokens]
    TensorView normed;          // [tokens, latent]
    MlpLayer::Saved shared;
  };

  [[nodiscard]] Weights<ParameterSpec> weights(const Group& expert_group) const;
  // y [tokens, hidden] is overwritten. All ranks of the expert group call this together, also with zero tokens.
  [[nodiscard]] Saved forward(ExecContext& ctx, Arena& keep, const Group& expert_group, const Weights<TensorView>& w,
                              const RouterState& router, TensorView x, TensorView y) const;
  // dx [tokens, hidden] is overwritten, dw accumulated. All ranks of the expert group call this together.
  void backward(ExecContext& ctx, const Group& expert_group, const Weights<TensorView>& w, TensorView x, const Saved& saved,
                TensorView dy, TensorView dx, const Weights<TensorView>& dw) const;

  Options options;
};

}  // namespace longhaul
