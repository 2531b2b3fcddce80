// Gated multi-head latent attention without positions (DeepSeek-V2, arXiv:2405.04434; gate and NoPE: Kimi K3,
// arXiv:2607.24653, section 2.1.2, eq. 7; Kimi Linear has neither the query's low rank nor the gate).
//   q = RMSNorm(x Wqa^T) Wqb^T  or  x Wq^T
//   [c | k_shared] = x Wkva^T;  [k_heads | v] = RMSNorm(c) Wkvb^T;  k = [k_heads | k_shared]
//   y = Wo ( softmax(q k^T (nope_dim + shared_dim)^-1/2) v * sigmoid(x Wg^T) ),  causal within a document
#pragma once

#include "device/exec_context.h"
#include "layers/packing.h"
#include "layers/parameter.h"

namespace longhaul {

struct MlaLayer {
  struct Options {
    int64_t hidden = 0;
    int64_t heads = 0;
    int64_t q_lora_rank = 0;  // 0: a full-rank q_proj
    int64_t kv_lora_rank = 0;
    int64_t nope_dim = 0;    // qk_nope_head_dim
    int64_t shared_dim = 0;  // qk_rope_head_dim: shared by all heads, never rotated
    int64_t v_dim = 0;
    bool output_gate = true;
    double latent_norm_eps = 1e-6;  // of q_a_layernorm and kv_a_layernorm
    double init_stddev = 0.02;
    DType dtype = DType::F32;

    [[nodiscard]] int64_t key_dim() const noexcept { return nope_dim + shared_dim; }
  };

  template <class T>
  struct Weights {
    T q_proj;                            // [heads * key_dim, hidden]; without q_lora_rank
    T q_a_proj, q_a_layernorm, q_b_proj;  // [q_lora_rank, hidden], [q_lora_rank], [heads * key_dim, q_lora_rank]
    T kv_a_proj;                         // [kv_lora_rank + shared_dim, hidden]
    T kv_a_layernorm;                    // [kv_lora_rank]
    T kv_b_proj;                         // [heads * (nope_dim + v_dim), kv_lora_rank]
    T g_proj;                            // [heads * v_dim, hidden]; with output_gate
    T o_proj;                            // [hidden, heads * v_dim]
  };
  template <class W, class F>
  static void for_each(const Options& options, W& w, F&& f) {
    if (options.q_lora_rank > 0) {
      f("q_a_proj.weight", w.q_a_proj);
      f("q_a_layernorm.weight", w.q_a_layernorm);
      f("q_b_proj.weight", w.q_b_proj);
    } else {
      f("q_proj.weight", w.q_proj);
    }
    f("kv_a_proj_with_mqa.weight", w.kv_a_proj);
    f("kv_a_layernorm.weight", w.kv_a_layernorm);
    f("kv_b_proj.weight", w.kv_b_proj);
    if (options.output_gate) {
      f("g_proj.weight", w.g_proj);
    }
    f("o_proj.weight", w.o_proj);
  }

  struct Saved {
    TensorView q_a;         // [tokens, q_lora_rank]
    TensorView q_a_rms;     // [tokens]
    TensorView q_a_normed;  // [tokens, q_lora_rank]
    TensorView q;           // [tokens, heads, key_dim]
    TensorView kv_a;        // [tokens, kv_lora_rank + shared_dim]
    TensorView kv_a_rms;    // [tokens]
    TensorView kv_normed;   // [tokens, kv_lora_rank]
    TensorView kv;          // [tokens, heads, nope_dim + v_dim]
    TensorView k;           // [tokens, heads, key_dim]
    TensorView o;           // [tokens, heads, v_dim], accurate type
    TensorView lse;         // [tokens, heads]
    TensorView gate;        // [tokens, heads * v_dim]
    TensorView gated;       // [tokens, heads * v_dim], input of o_proj
  };

  [[nodiscard]] Weights<ParameterSpec> weights() const;
  // y [tokens, hidden] is overwritten.
  [[nodiscard]] Saved forward(ExecContext& ctx, Arena& keep, const Weights<TensorView>& w, const Packing& packing,
                              TensorView x, TensorView y) const;
  // dx [tokens, hidden] is overwritten, dw accumulated.
  void backward(ExecContext& ctx, const Weights<TensorView>& w, const Packing& packing, TensorView x, const Saved& saved,
                TensorView dy, TensorView dx, const Weights<TensorView>& dw) const;

  Options options;
};

}  // namespace longhaul
