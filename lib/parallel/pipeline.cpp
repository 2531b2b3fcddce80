// See pipeline.h.
#include "parallel/pipeline.h"

#include <algorithm>

#include "base/cast.h"

namespace longhaul {
namespace {

// Transfers between a pair of stages arrive in the order they were sent, so one tag a direction is enough.
constexpr int kForwardTag = 0;
constexpr int kBackwardTag = 1;

void send_all(const Group& group, std::span<const TensorView> tensors, int peer, int tag, std::vector<PendingTransfer>& sends) {
  for (const TensorView& tensor : tensors) {
    sends.push_back(group.device.isend(tensor, peer, tag));
  }
}

std::vector<TensorView> receive_all(const Group& group, Arena& keep, int64_t count, DType dtype, const Shape& shape, int peer, int tag) {
  std::vector<TensorView> tensors;
  std::vector<PendingTransfer> pending;
  for (int64_t i = 0; i < count; ++i) {
    tensors.push_back(take(keep, "pipeline.received", dtype, shape));
    pending.push_back(group.device.irecv(tensors.back(), peer, tag));
  }
  for (PendingTransfer& transfer : pending) {
    transfer.wait();
  }
  return tensors;
}

}  // namespace

Pipeline::Pipeline(const StageModel& model, const Parameters& parameters, const Group& pipeline_group, Device device, int64_t slots,
                   int64_t keep_bytes_per_slot)
    : model_(model), parameters_(parameters), group_(pipeline_group) {
  for (int64_t i = 0; i < std::max<int64_t>(slots, 1); ++i) {
    // Routing and document lengths decide part of the size, so the arena may grow beyond the plan.
    slots_.push_back({.keep = Arena(device, "activations", keep_bytes_per_slot, Arena::Growth::Chunked)});
  }
}

void Pipeline::run(ExecContext& ctx, const Step& step) {
  LH_CHECK(max_in_flight(step.schedule) <= narrow<int64_t>(slots_.size()) ||
               step.purpose == StageModel::Purpose::LossOnly,
           "the schedule has more micro-batches in flight than the pipeline's {} slots", slots_.size());
  for (const Work& work : step.schedule) {
    if (work.kind == WorkKind::Forward) {
      forward(ctx, step, work.micro_batch);
    } else {
      backward(ctx, work.micro_batch);
    }
  }
  for (Slot& slot : slots_) {
    free_slot(slot);
  }
}

void Pipeline::forward(ExecContext& ctx, const Step& step, int64_t micro_batch) {
  Slot& slot = slot_of(micro_batch);
  free_slot(slot);
  const MicroBatch& batch = step.micro_batches[static_cast<size_t>(micro_batch)];
  const Shape wide{batch.ids.size(0), model_.options().hidden_size};
  const std::vector<TensorView> sources_in =
      receive_all(group_, slot.keep, model_.num_sources_in(), model_.dtype(), wide, group_.rank - 1, kForwardTag);
  slot.saved = model_.forward(ctx, slot.keep, parameters_.values(), step.routers, batch, sources_in, step.loss, step.purpose,
                              &parameters_.gradients());
  if (model_.num_sources_out() > 0) {
    send_all(group_, slot.saved.after.sources(), group_.rank + 1, kForwardTag, slot.sends);
  }
  if (after_forward) {
    after_forward(micro_batch, slot.saved);
  }
}

void Pipeline::backward(ExecContext& ctx, int64_t micro_batch) {
  Slot& slot = slot_of(micro_batch);
  const Shape wide = slot.saved.after.prefix.shape();
  const std::vector<TensorView> dsources_out = receive_all(group_, slot.keep, model_.num_sources_out(), accurate_type(model_.dtype()), wide,
                                                           group_.rank + 1, kBackwardTag);
  const std::vector<TensorView> dsources_in =
      model_.backward(ctx, slot.keep, parameters_.values(), slot.saved, dsources_out, parameters_.gradients());
  send_all(group_, dsources_in, group_.rank - 1, kBackwardTag, slot.sends);
}

void Pipeline::free_slot(Slot& slot) {
  for (PendingTransfer& send : slot.sends) {
    send.wait();
  }
  slot.sends.clear();
  slot.saved = {};
  slot.keep.release({});
}

int64_t Pipeline::keep_high_water_bytes() const {
  int64_t total = 0;
  for (const Slot& slot : slots_) {
    total += slot.keep.high_water_bytes();
  }
  return total;
}

int64_t Pipeline::keep_capacity_bytes() const {
  int64_t total = 0;
  for (const Slot& slot : slots_) {
    total += slot.keep.capacity_bytes();
  }
  return total;
}

StageMemory plan_stage_memory(const StageModel& model, Device device, int64_t tokens, int64_t documents) {
  ExecContext ctx = ExecContext::plan(device);
  Arena keep = Arena::measuring(device, "activations");
  const auto absent_data = [&](DType dtype, const Shape& shape) { return TensorView(nullptr, dtype, shape, device); };
  const auto views = [&](auto&& type_of) {
    StageModel::Weights<ParameterSpec> specs = model.weights();
    StageModel::Weights<TensorView> weights;
    weights.layers.resize(specs.layers.size());
    std::vector<TensorView> all;
    model.for_each(specs, [&](const std::string&, ParameterSpec& spec) { all.push_back(absent_data(type_of(spec), spec.shape)); });
    size_t at = 0;
    model.for_each(weights, [&](const std::string&, TensorView& view) { view = all[at++]; });
    return weights;
  };
  const StageModel::Weights<TensorView> values = views([](const ParameterSpec& spec) { return spec.dtype; });
  const StageModel::Weights<TensorView> gradients = views([&](const ParameterSpec&) { return gradient_type(model.dtype(), device); });
  const MicroBatch batch{.ids = absent_data(DType::I32, {tokens}), .targets = absent_data(DType::I32, {tokens}),
                         .cu_seqlens = absent_data(DType::I64, {documents + 1})};
  std::vector<RouterState> routers;
  for (const DecoderLayer& layer : model.layers()) {
    RouterState router;
    if (!layer.is_dense) {
      router.bias = absent_data(accurate_type(model.dtype()), {layer.moe.options.num_experts});
    }
    routers.push_back(router);
  }
  const Shape wide{tokens, model.options().hidden_size};
  const auto received = [&](int64_t count, DType dtype) {
    std::vector<TensorView> tensors;
    for (int64_t i = 0; i < count; ++i) {
      tensors.push_back(take(keep, "pipeline.received", dtype, wide));
    }
    return tensors;
  };
  const StageModel::Loss loss{.sum = absent_data(DType::F64, {1}), .grad_scale = 1};
  const std::vector<TensorView> sources = received(model.num_sources_in(), model.dtype());
  const StageModel::Saved saved = model.forward(ctx, keep, values, routers, batch, sources, loss, StageModel::Purpose::Train, &gradients);
  const std::vector<TensorView> dsources = received(model.num_sources_out(), accurate_type(model.dtype()));
  (void)model.backward(ctx, keep, values, saved, dsources, gradients);

  StageMemory memory{.keep_bytes = keep.high_water_bytes(), .scratch_bytes = ctx.scratch().high_water_bytes(), .keep_entries = keep.entries()};
  std::sort(memory.keep_entries.begin(), memory.keep_entries.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return memory;
}

}  // namespace longhaul
