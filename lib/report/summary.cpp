// See summary.h.
#include "report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/series.h"

namespace longhaul::report {
namespace {

std::vector<double> values_of(const RunRecord& run, double StepRecord::* field) {
  std::vector<double> values;
  for (const StepRecord& step : run.steps) {
    if (std::isfinite(step.*field)) {
      values.push_back(step.*field);
    }
  }
  return values;
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  return values.empty() ? kMissing : sum;
}

// The last twentieth of the run, at least one step and at most a hundred.
void add_train_loss(const RunRecord& run, Summary& summary) {
  const std::vector<double> losses = values_of(run, &StepRecord::loss);
  if (losses.empty()) {
    return;
  }
  summary.train_loss_steps = std::clamp<int64_t>(std::ssize(losses) / 20, 1, 100);
  const std::vector<double> last(losses.end() - static_cast<std::ptrdiff_t>(summary.train_loss_steps), losses.end());
  summary.train_loss = sum_of(last) / static_cast<double>(summary.train_loss_steps);
}

void add_validation(const RunRecord& run, Summary& summary) {
  for (const ValidationRecord& record : run.validations) {
    if (!std::isfinite(record.loss)) {
      continue;
    }
    summary.validation_loss = record.loss;
    summary.bits_per_byte = record.bits_per_byte;
    summary.validation_step = record.step;
    if (!(summary.best_validation_loss <= record.loss)) {
      summary.best_validation_loss = record.loss;
      summary.best_validation_step = record.step;
    }
  }
}

}  // namespace

Summary summarise(const RunRecord& run) {
  Summary summary;
  if (!run.steps.empty()) {
    summary.last_step = run.steps.back().step;
    summary.tokens = run.steps.back().tokens;
  }
  add_train_loss(run, summary);
  add_validation(run, summary);
  summary.tokens_per_second = median(values_of(run, &StepRecord::tokens_per_second));
  summary.step_seconds = median(values_of(run, &StepRecord::step_ms)) * 1e-3;
  summary.tflops_per_rank = median(values_of(run, &StepRecord::tflops_per_rank));
  summary.mfu = median(values_of(run, &StepRecord::mfu));
  const std::vector<double> memory = values_of(run, &StepRecord::peak_memory_bytes);
  summary.peak_memory_bytes = memory.empty() ? kMissing : *std::max_element(memory.begin(), memory.end());
  summary.training_seconds = sum_of(values_of(run, &StepRecord::step_ms)) * 1e-3;
  std::vector<double> saves;
  for (const CheckpointRecord& checkpoint : run.checkpoints) {
    if (std::isfinite(checkpoint.seconds)) {
      saves.push_back(checkpoint.seconds);
    }
  }
  summary.checkpoint_seconds = sum_of(saves);
  return summary;
}

Status status_of(const RunRecord& run) {
  if (!run.end) {
    return {.text = "no end recorded: running, or killed"};
  }
  if (run.end->reason == "finished") {
    return {.text = "finished", .is_finished = true};
  }
  if (run.end->reason == "preempted") {
    return {.text = fmt::format("preempted at step {}, to be resumed", run.end->step)};
  }
  return {.text = fmt::format("{} at step {}", run.end->reason == "stop_at_step" ? "stopped as asked" : run.end->reason, run.end->step)};
}

}  // namespace longhaul::report
