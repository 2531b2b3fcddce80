// See stage_model.h.
#include "model/stage_model.h"

#include "base/cast.h"
#include "kernels/attn_res_mix/attn_res_mix.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/rms_norm/rms_norm.h"

namespace longhaul {
namespace {

TensorView as_vector(const TensorView& row) { return row.reshape({row.numel()}); }

Stream stream_of(std::span<const TensorView> sources) {
  Stream stream;
  stream.blocks.assign(sources.begin(), sources.end() - 1);
  stream.prefix = sources.back();
  return stream;
}

}  // namespace

StageModel::StageModel(const ModelOptions& model, const StageRange& range, DType dtype, const Group& expert_group)
    : model_(model), range_(range), dtype_(dtype), expert_group_(expert_group) {
  for (int64_t layer = range.first_layer; layer < range.last_layer; ++layer) {
    layers_.emplace_back(model, layer, dtype);
  }
}

StageModel::Weights<ParameterSpec> StageModel::weights() const {
  const int64_t hidden = model_.hidden_size;
  Weights<ParameterSpec> w;
  w.embedding = w.lm_head = matrix(dtype_, {model_.vocab_size, hidden}, model_.initializer_range);
  for (const DecoderLayer& layer : layers_) {
    w.layers.push_back(layer.weights(expert_group_));
  }
  w.output_res_norm = w.norm = norm_scale(dtype_, hidden);
  w.output_res_proj = {.dtype = dtype_, .shape = {1, hidden}, .init = InitKind::Zeros, .decay = WeightDecay::No};
  return w;
}

StageModel::Saved StageModel::forward(ExecContext& ctx, Arena& keep, const Weights<TensorView>& w,
                                      std::span<const RouterState> routers, const MicroBatch& batch,
                                      std::span<const TensorView> sources_in, const Loss& loss, Purpose purpose,
                                      const Weights<TensorView>* dw) const {
  LH_CHECK(narrow<int64_t>(sources_in.size()) == num_sources_in(), "{} sources came into a stage that reads {}", sources_in.size(),
           num_sources_in());
  const int64_t tokens = batch.ids.size(0);
  const Shape wide{tokens, model_.hidden_size};
  Saved s;
  s.batch = batch;
  Stream stream;
  if (range_.has_embedding) {
    stream.prefix = take(keep, "model.embedded", dtype_, wide);
    embedding_forward(ctx, {.ids = batch.ids, .table = w.embedding, .y = stream.prefix});
  } else {
    stream = stream_of(sources_in);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    s.layers.push_back(layers_[i].forward(ctx, keep, expert_group_, w.layers[i], routers[i], batch.packing(), stream));
  }
  s.after = stream;
  if (!range_.has_head) {
    return s;
  }

  s.head_site.mixed = stream.prefix;
  if (model_.block_size() > 0) {
    s.head_site.mixed = take(keep, "model.mixed", dtype_, wide);
    const std::vector<TensorView> sources = stream.sources();
    attn_res_mix_forward(ctx, {.sources = sources, .norm_scale = w.output_res_norm, .query = as_vector(w.output_res_proj),
                               .eps = model_.rms_norm_eps, .y = s.head_site.mixed});
  }
  s.head_site.inv_rms = take(keep, "model.inv_rms", accurate_type(dtype_), {tokens});
  s.head_site.normed = take(keep, "model.normed", dtype_, wide);
  rms_norm_forward(ctx, {.x = s.head_site.mixed, .scale = w.norm, .eps = model_.rms_norm_eps, .y = s.head_site.normed,
                         .inv_rms = s.head_site.inv_rms});
  LinearCrossEntropy head{.x = s.head_site.normed, .weight = w.lm_head, .targets = batch.targets, .loss_sum = loss.sum};
  if (purpose == Purpose::Train) {
    LH_CHECK(dw != nullptr, "the last stage needs its gradients in forward: the head's backward is part of the loss");
    s.dnormed = take(keep, "model.dnormed", dtype_, wide);
    head.grad_scale = loss.grad_scale;
    head.dx = s.dnormed;
    head.dweight = dw->lm_head;
  }
  linear_cross_entropy(ctx, head);
  return s;
}

std::vector<TensorView> StageModel::backward(ExecContext& ctx, Arena& keep, const Weights<TensorView>& w, const Saved& s,
                                             std::span<const TensorView> dsources_out, const Weights<TensorView>& dw) const {
  const Shape wide = s.after.prefix.shape();
  Stream gradient;
  if (range_.has_head) {
    const std::vector<TensorView> sources = s.after.sources();
    std::vector<TensorView> dsources;
    for (size_t i = 0; i < sources.size(); ++i) {
      dsources.push_back(take(keep, "model.dsources", accurate_type(dtype_), wide));
      fill(ctx, dsources.back(), 0);
    }
    gradient = stream_of(dsources);
    const ArenaScope scope(ctx.scratch());
    const TensorView dmixed = take(ctx.scratch(), "model.dmixed", dtype_, wide);
    rms_norm_backward(ctx, {.dy = s.dnormed, .x = s.head_site.mixed, .scale = w.norm, .inv_rms = s.head_site.inv_rms, .dx = dmixed,
                            .dscale = dw.norm});
    if (model_.block_size() > 0) {
      attn_res_mix_backward(ctx, {.dy = dmixed, .sources = sources, .norm_scale = w.output_res_norm, .query = as_vector(w.output_res_proj),
                                  .eps = model_.rms_norm_eps, .dsources = dsources, .dnorm_scale = dw.output_res_norm,
                                  .dquery = as_vector(dw.output_res_proj)});
    } else {
      add(ctx, dmixed, gradient.prefix);
    }
  } else {
    LH_CHECK(narrow<int64_t>(dsources_out.size()) == num_sources_out(), "{} gradients came into a stage that has {} outputs",
             dsources_out.size(), num_sources_out());
    gradient = stream_of(dsources_out);
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    layers_[i].backward(ctx, expert_group_, w.layers[i], s.batch.packing(), s.layers[i], gradient, dw.layers[i]);
  }
  if (range_.has_embedding) {
    embedding_backward(ctx, {.dy = gradient.prefix, .ids = s.batch.ids, .dtable = dw.embedding});
    return {};
  }
  return gradient.sources();
}

void StageModel::logits(ExecContext& ctx, const Weights<TensorView>& w, const Saved& s, TensorView out) const {
  LH_CHECK(range_.has_head, "only the last stage has logits");
  linear_forward(ctx, {.x = s.head_site.normed, .weight = w.lm_head, .y = out});
}

}  // namespace longhaul
