// See step.h.
#include "train/step.h"

#include <cmath>

#include "base/cast.h"
#include "comm/agreement.h"
#include "kernels/elementwise/elementwise.h"
#include "optim/schedule.h"
#include "tensor/host_copy.h"
#include "train/batch.h"

namespace longhaul {
namespace {

TensorView loss_sum(const StageState& state) { return state.sums.view().slice(0, 0, 1); }
TensorView gradient_squares(const StageState& state) { return state.sums.view().slice(0, 1, 2); }

// The loss summed over all ranks of the last stage, on every rank.
double total_loss(StageState& state, double local_sum) {
  const TensorView sum(&local_sum, DType::F64, {1});
  if (state.model.range().has_head) {
    state.groups.loss.host_data.all_reduce_sum(sum, ReduceOrder::Fixed);
  }
  state.groups.pipeline.host_data.broadcast(sum, state.groups.pipeline.size - 1);
  return local_sum;
}

// sqrt(sum of squares) of all gradients of the whole model, on every rank.
double global_gradient_norm(StageState& state, double local_squares) {
  state.groups.model.host_data.all_reduce_sum(TensorView(&local_squares, DType::F64, {1}), ReduceOrder::Fixed);
  return std::sqrt(local_squares);
}

void reduce_gradients(StageState& state) {
  state.groups.loss.device.all_reduce_sum(state.parameters.dense_gradients());
  state.groups.expert_data.device.all_reduce_sum(state.parameters.expert_gradients());
}

double worst_violation(StageState& state, const BalanceReport& report) {
  double worst = report.max_violation();
  state.groups.pipeline.host_data.all_reduce_max(TensorView(&worst, DType::F64, {1}));
  return worst;
}

void require_finite(const StepResult& result, const StagePlan& plan, int64_t step) {
  if (!std::isfinite(result.loss) || !std::isfinite(result.gradient_norm)) {
    throw DivergenceError("step {} of stage {}: loss {} and gradient norm {} must be finite; the weights are those of step {}, resume from the "
                          "last checkpoint with a lower learning_rate or clip_norm",
                          step, plan.name, result.loss, result.gradient_norm, step - 1);
  }
}

// Every rank plans the whole batch and reads its own part.
Batches read_batches(StageState& state, HostComm& world, int64_t& targets) {
  const StagePlan& plan = state.plan();
  return run_agreed(world, [&] {
    const std::vector<SequencePlan> planned = state.loader.next_batch(plan.sequences_per_step);
    for (const SequencePlan& sequence : planned) {
      targets += sequence.num_targets;
    }
    const SequenceRange mine = sequences_of_rank(plan.sequences_per_step, state.groups.data.rank, state.groups.data.size);
    return Batches(state.exec, state.batch_memory, plan.micro_batches, plan.sequences_per_micro_batch,
                   [&](int64_t i) { return state.loader.read(planned[static_cast<size_t>(mine.begin + i)]); });
  });
}

}  // namespace

StepResult train_step(StageState& state, HostComm& world, Watchdog& watchdog, int64_t step, int64_t total_steps,
                      const std::function<void()>& before_update) {
  const StagePlan& plan = state.plan();
  StepResult result;
  watchdog.beat("data");
  const Batches batches = read_batches(state, world, result.targets);

  watchdog.beat("forward and backward");
  state.parameters.zero_gradients(state.exec);
  fill(state.exec, state.sums, 0);
  const std::vector<Work> schedule = one_forward_one_backward(state.groups.pipeline.rank, state.groups.pipeline.size, plan.micro_batches);
  const std::vector<RouterState> routers = state.router_states(StageModel::Purpose::Train);
  state.pipeline.run(state.exec, {.schedule = schedule,
                                  .micro_batches = batches.views(),
                                  .routers = routers,
                                  .loss = {.sum = loss_sum(state),
                                           .grad_scale = result.targets > 0 ? 1.0 / static_cast<double>(result.targets) : 0.0},
                                  .purpose = StageModel::Purpose::Train});

  watchdog.beat("gradient reduction");
  reduce_gradients(state);
  add_gradient_squares(state.exec, state.parameters, state.groups.expert, gradient_squares(state));
  state.groups.finish();
  const HostCopy sums(state.sums);  // the one place where the host waits for the device
  result.loss = result.targets > 0 ? total_loss(state, sums.view().data<double>()[0]) / static_cast<double>(result.targets) : 0.0;
  result.gradient_norm = global_gradient_norm(state, sums.view().data<double>()[1]);
  run_agreed(world, [&] { require_finite(result, plan, step); });
  if (before_update) {
    before_update();
  }

  watchdog.beat("update");
  // What the device has counted is read first; it then updates the weights while the host balances.
  state.balance.collect();
  result.learning_rate = learning_rate_at(plan.optimizer, step, total_steps);
  state.optimizer.update(state.exec, plan.optimizer, result.learning_rate, clip_factor(result.gradient_norm, plan.optimizer.clip_norm), step);
  state.parameters.publish(state.exec);
  const BalanceReport report = state.balance.end_step(state.balance_collectives());
  if (report.updated) {
    state.balance.publish(state.exec);
  }
  result.balance_updated = report.updated;
  result.max_violation = worst_violation(state, report);
  return result;
}

ValidationResult validate(StageState& state, Watchdog& watchdog) {
  LH_CHECK(state.validation.has_value(), "stage {} has no validation data", state.plan().name);
  watchdog.beat("validation");
  const StagePlan& plan = state.plan();
  const int64_t ranks = state.groups.data.size;
  const int64_t together = ranks * plan.sequences_per_micro_batch;
  const int64_t micro_batches = ceil_div(state.validation->num_sequences(), together);
  const std::vector<RouterState> routers = state.router_states(StageModel::Purpose::LossOnly);
  fill(state.exec, state.sums, 0);
  // One micro-batch at a time: nothing but the loss is kept, so there is no reason to hold the data of all.
  for (int64_t m = 0; m < micro_batches; ++m) {
    const int64_t first = m * together + state.groups.data.rank * plan.sequences_per_micro_batch;
    const Batches batches(state.exec, state.batch_memory, 1, plan.sequences_per_micro_batch, [&](int64_t i) { return state.validation->read(first + i); });
    state.pipeline.run(state.exec, {.schedule = forward_only(1),
                                    .micro_batches = batches.views(),
                                    .routers = routers,
                                    .loss = {.sum = loss_sum(state)},
                                    .purpose = StageModel::Purpose::LossOnly});
  }
  const int64_t targets = state.validation->num_targets();
  const double total = total_loss(state, HostCopy(state.sums).view().data<double>()[0]);
  return {.loss = targets > 0 ? total / static_cast<double>(targets) : 0.0, .targets = targets};
}

}  // namespace longhaul
