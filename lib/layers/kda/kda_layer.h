// Kimi Delta Attention layer: projections, short convolutions, L2-normalised q and k, decay gate, gated delta rule,
// output norm and gate (Kimi Linear, arXiv:2510.26692; bounded decay and full-rank gate: Kimi K3, arXiv:2607.24653).
//   q, k, v = SiLU(conv(x W^T));  q, k = l2norm per head;  g = decay_gate(x Wfa^T Wfb^T);  beta = sigmoid(x Wb^T)
//   y = Wo [ RMSNorm_head(kda(q, k, v, g, beta)) * sigmoid(gate(x)) ]
#pragma once

#include "device/exec_context.h"
#include "kernels/decay_gate/decay_gate.h"
#include "kernels/kda/kda.h"
#include "layers/packing.h"
#include "layers/parameter.h"

namespace longhaul {

struct KdaLayer {
  struct Options {
    int64_t hidden = 0;
    int64_t heads = 0;
    int64_t head_dim = 0;  // of keys and values; also the rank of the decay projection
    int64_t conv_width = 4;
    DecayKind decay = DecayKind::Bounded;
    double lower_bound = -5;
    bool full_rank_gate = true;  // false: gate through rank head_dim (Kimi Linear)
    double norm_eps = 1e-5;
    double init_stddev = 0.02;
    DType dtype = DType::F32;  // of computation
  };

  template <class T>
  struct Weights {
    T q_proj, k_proj, v_proj;     // [heads * head_dim, hidden]
    T q_conv, k_conv, v_conv;     // [heads * head_dim, 1, conv_width], accurate type
    T f_a_proj;                   // [head_dim, hidden]
    T f_b_proj;                   // [heads * head_dim, head_dim]
    T b_proj;                     // [heads, hidden]
    T a_log;                      // [heads], accurate type
    T dt_bias;                    // [heads * head_dim], accurate type
    T o_norm;                     // [head_dim], accurate type
    T g_proj;                     // [heads * head_dim, hidden]; with full_rank_gate
    T g_a_proj, g_b_proj;         // [head_dim, hidden], [heads * head_dim, head_dim]; without
    T o_proj;                     // [hidden, heads * head_dim]
  };
  // f(name, field) in the order of the released checkpoints; the gate's unused form is left out.
  template <class W, class F>
  static void for_each(const Options& options, W& w, F&& f) {
    f("q_proj.weight", w.q_proj);
    f("k_proj.weight", w.k_proj);
    f("v_proj.weight", w.v_proj);
    f("q_conv1d.weight", w.q_conv);
    f("k_conv1d.weight", w.k_conv);
    f("v_conv1d.weight", w.v_conv);
    f("f_a_proj.weight", w.f_a_proj);
    f("f_b_proj.weight", w.f_b_proj);
    f("b_proj.weight", w.b_proj);
    f("A_log", w.a_log);
    f("dt_bias", w.dt_bias);
    f("o_norm.weight", w.o_norm);
    if (options.full_rank_gate) {
      f("g_proj.weight", w.g_proj);
    } else {
      f("g_a_proj.weight", w.g_a_proj);
      f("g_b_proj.weight", w.g_b_proj);
    }
    f("o_proj.weight", w.o_proj);
  }

  struct Saved {
    TensorView q_pre, k_pre, v_pre;   // [tokens, heads * head_dim], before convolution
    TensorView q, k, v;               // [tokens, heads, head_dim], q and k normalised
    TensorView q_inv_norm, k_inv_norm;  // [tokens, heads]
    TensorView f_a;                   // [tokens, head_dim]
    TensorView z;                     // [tokens, heads, head_dim], decay logits
    TensorView g;                     // [tokens, heads, head_dim], log-decay
    TensorView beta;                  // [tokens, heads]
    TensorView chunk_states;          // [kda_state_rows, heads, head_dim, head_dim]
    TensorView o;                     // [tokens, heads, head_dim]
    TensorView inv_rms;               // [tokens, heads]
    TensorView g_a;                   // [tokens, head_dim]; without full_rank_gate
    TensorView gate;                  // [tokens, heads * head_dim], logits
    TensorView gated;                 // [tokens, heads * head_dim], input of o_proj
  };

  [[nodiscard]] Weights<ParameterSpec> weights() const;
  // y [tokens, hidden] is overwritten. What backward needs is taken from `keep` and returned.
  [[nodiscard]] Saved forward(ExecContext& ctx, Arena& keep, const Weights<TensorView>& w, const Packing& packing,
                              TensorView x, TensorView y) const;
  // dx [tokens, hidden] is overwritten, dw accumulated.
  void backward(ExecContext& ctx, const Weights<TensorView>& w, const Packing& packing, TensorView x, const Saved& saved,
                TensorView dy, TensorView dx, const Weights<TensorView>& dw) const;

  Options options;
};

}  // namespace longhaul
