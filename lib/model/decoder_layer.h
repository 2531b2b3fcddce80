// One decoder layer: attention and feed-forward sub-layers with their norms, over Attention Residuals
// (arXiv:2603.15031; order of the released Kimi K3 model) or ordinary residuals.
//
// The stream between layers is a list of sources: the finished blocks and the running prefix of the open block.
//   h = mix(blocks + [prefix])          attention site; prefix itself when there are no blocks
//   at a block's first layer: blocks += [prefix]; prefix = nothing
//   prefix = prefix + Attention(norm(h))
//   h = mix(blocks + [prefix]);  prefix = prefix + FeedForward(norm(h))
// Without Attention Residuals there are no blocks and mix is the prefix.
#pragma once

#include <vector>

#include "layers/kda/kda_layer.h"
#include "layers/mla/mla_layer.h"
#include "layers/mlp/mlp_layer.h"
#include "layers/moe/moe_layer.h"
#include "layers/packing.h"
#include "model/options.h"

namespace longhaul {

// The residual stream at one place of the model; all views are [tokens, hidden].
struct Stream {
  std::vector<TensorView> blocks;
  TensorView prefix;

  // blocks + [prefix], the order of a mix and of the payload between pipeline stages.
  [[nodiscard]] std::vector<TensorView> sources() const;
};

struct DecoderLayer {
  DecoderLayer(const ModelOptions& model, int64_t layer, DType dtype);

  template <class T>
  struct Weights {
    T input_norm, post_norm;                   // [hidden]
    T attn_res_norm, attn_res_proj;            // [hidden], [1, hidden]; with Attention Residuals
    T mlp_res_norm, mlp_res_proj;              // [hidden], [1, hidden]; with Attention Residuals
    KdaLayer::Weights<T> kda;                  // one of kda, mla
    MlaLayer::Weights<T> mla;
    MlpLayer::Weights<T> mlp;                  // one of mlp, moe
    MoeLayer::Weights<T> moe;
  };
  // f(name, field) with the names of the released checkpoints, relative to "model.layers.L.".
  template <class W, class F>
  void for_each(W& w, F&& f) const {
    f("input_layernorm.weight", w.input_norm);
    f("post_attention_layernorm.weight", w.post_norm);
    if (block_size > 0) {
      f("self_attention_res_norm.weight", w.attn_res_norm);
      f("self_attention_res_proj.weight", w.attn_res_proj);
      f("mlp_res_norm.weight", w.mlp_res_norm);
      f("mlp_res_proj.weight", w.mlp_res_proj);
    }
    const auto within = [&f](const char* prefix) {
      return [prefix, &f](const char* name, auto& field) { f((std::string(prefix) + name).c_str(), field); };
    };
    if (is_kda) {
      KdaLayer::for_each(kda.options, w.kda, within("self_attn."));
    } else {
      MlaLayer::for_each(mla.options, w.mla, within("self_attn."));
    }
    if (is_dense) {
      MlpLayer::for_each(mlp.options, w.mlp, within("mlp."));
    } else {
      MoeLayer::for_each(moe.options, w.moe, within("block_sparse_moe."));
    }
  }

  // One norm of a mixed stream: what a sub-layer reads.
  struct Site {
    TensorView mixed;    // [tokens, hidden]; the prefix itself where there is nothing to mix
    TensorView inv_rms;  // [tokens]
    TensorView normed;   // [tokens, hidden]
  };
  struct Saved {
    Stream before, middle;  // at the attention site and at the feed-forward site
    Site attention_site, ffn_site;
    KdaLayer::Saved kda;
    MlaLayer::Saved mla;
    MlpLayer::Saved mlp;
    MoeLayer::Saved moe;
  };

  [[nodiscard]] Weights<ParameterSpec> weights(const Group& expert_group) const;
  // Advances `stream` through the layer; new tensors come from `keep`.
  [[nodiscard]] Saved forward(ExecContext& ctx, Arena& keep, const Group& expert_group, const Weights<TensorView>& w,
                              const RouterState& router, const Packing& packing, Stream& stream) const;
  // `gradient` is the gradient of the stream behind the layer (accurate type) and becomes that of the stream before it.
  void backward(ExecContext& ctx, const Group& expert_group, const Weights<TensorView>& w, const Packing& packing,
                const Saved& saved, Stream& gradient, const Weights<TensorView>& dw) const;

  int64_t layer = 0;       // 0-based
  int64_t hidden = 0;
  int64_t block_size = 0;  // 0: ordinary residuals
  bool is_kda = false;
  bool is_dense = false;
  double eps = 1e-5;
  DType dtype = DType::F32;
  KdaLayer kda;
  MlaLayer mla;
  MlpLayer mlp;
  MoeLayer moe;

 private:
  [[nodiscard]] bool starts_block() const noexcept { return block_size > 0 && layer % block_size == 0; }
  [[nodiscard]] Site enter(ExecContext& ctx, Arena& keep, const Stream& stream, TensorView res_norm, TensorView res_proj,
                           TensorView norm) const;
  // Adds the gradient of a site's output to `gradient`, the stream that the site mixed.
  void leave(ExecContext& ctx, const Site& site, const Stream& stream, TensorView dnormed, TensorView res_norm,
             TensorView res_proj, TensorView norm, const Stream& gradient, TensorView dres_norm, TensorView dres_proj,
             TensorView dnorm) const;
};

}  // namespace longhaul
