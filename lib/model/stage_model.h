// What one pipeline stage computes on one micro-batch: embedding (first stage), decoder layers, and the head with the loss
// (last stage), forward and backward, written out. A model on one rank is a single stage.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/cut.h"
#include "model/decoder_layer.h"

namespace longhaul {

// Packed documents with their targets, on the model's device.
struct MicroBatch {
  TensorView ids;         // i32 [tokens]
  TensorView targets;     // i32 [tokens], kIgnoredTarget where there is nothing to predict
  TensorView cu_seqlens;  // i64 [documents + 1]

  [[nodiscard]] Packing packing() const { return {.tokens = ids.size(0), .cu_seqlens = cu_seqlens}; }
};

class StageModel {
 public:
  // `expert_group` must outlive the model.
  StageModel(const ModelOptions& model, const StageRange& range, DType dtype, const Group& expert_group);

  template <class T>
  struct Weights {
    T embedding;                          // [vocab, hidden]; first stage
    std::vector<DecoderLayer::Weights<T>> layers;
    T output_res_norm, output_res_proj;   // [hidden], [1, hidden]; last stage with Attention Residuals
    T norm;                               // [hidden]; last stage
    T lm_head;                            // [vocab, hidden]; last stage
  };
  // f(name, field) with the released names: "model.layers.3.self_attn.q_proj.weight", "lm_head.weight", …
  template <class W, class F>
  void for_each(W& w, F&& f) const {
    if (range_.has_embedding) {
      f(std::string("model.embed_tokens.weight"), w.embedding);
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
      const std::string prefix = fmt::format("model.layers.{}.", layers_[i].layer);
      layers_[i].for_each(w.layers[i], [&](const char* name, auto& field) { f(prefix + name, field); });
    }
    if (range_.has_head) {
      if (model_.block_size() > 0) {
        f(std::string("model.output_attn_res_norm.weight"), w.output_res_norm);
        f(std::string("model.output_attn_res_proj.weight"), w.output_res_proj);
      }
      f(std::string("model.norm.weight"), w.norm);
      f(std::string("lm_head.weight"), w.lm_head);
    }
  }
  [[nodiscard]] Weights<ParameterSpec> weights() const;

  enum class Purpose : uint8_t { Train, LossOnly };
  struct Loss {
    TensorView sum;          // f64 [1], accumulated on the last stage
    double grad_scale = 0;   // 1 / valid targets of the global batch
  };
  struct Saved {
    MicroBatch batch;
    std::vector<DecoderLayer::Saved> layers;
    Stream after;          // behind the last layer
    DecoderLayer::Site head_site;
    TensorView dnormed;    // [tokens, hidden], gradient at the head's input, known after forward
  };

  // `sources_in` are [tokens, hidden] in the compute type, empty on the first stage. `routers` has one entry a decoder
  // layer of this stage. The result's `after` is what crosses the next cut.
  [[nodiscard]] Saved forward(ExecContext& ctx, Arena& keep, const Weights<TensorView>& w, std::span<const RouterState> routers,
                              const MicroBatch& batch, std::span<const TensorView> sources_in, const Loss& loss, Purpose purpose,
                              const Weights<TensorView>* dw = nullptr) const;
  // `dsources_out` [tokens, hidden], accurate type: gradients of `after`, empty on the last stage; they are used as
  // accumulators. Returns the gradients of sources_in in the same order (empty on the first stage), taken from `keep`
  // or among dsources_out.
  [[nodiscard]] std::vector<TensorView> backward(ExecContext& ctx, Arena& keep, const Weights<TensorView>& w, const Saved& saved,
                                                 std::span<const TensorView> dsources_out, const Weights<TensorView>& dw) const;
  // Logits [tokens, vocab] of the last stage after forward.
  void logits(ExecContext& ctx, const Weights<TensorView>& w, const Saved& saved, TensorView logits) const;

  [[nodiscard]] const ModelOptions& options() const noexcept { return model_; }
  [[nodiscard]] const StageRange& range() const noexcept { return range_; }
  [[nodiscard]] const std::vector<DecoderLayer>& layers() const noexcept { return layers_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] int64_t num_sources_in() const { return range_.has_embedding ? 0 : sources_before(model_, range_.first_layer); }
  [[nodiscard]] int64_t num_sources_out() const { return range_.has_head ? 0 : sources_before(model_, range_.last_layer); }

 private:
  ModelOptions model_;
  StageRange range_;
  DType dtype_;
  const Group& expert_group_;
  std::vector<DecoderLayer> layers_;
};

}  // namespace longhaul
