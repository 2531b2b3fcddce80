// See step_line.h.
#include "train/step_line.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace longhaul {
namespace {

double tokens_per_second(const StepLine& line) { return line.seconds > 0 ? static_cast<double>(line.step_tokens) / line.seconds : 0; }

double tflops_per_rank(const StepLine& line) {
  return line.seconds > 0 ? line.flops * 1e-12 / line.seconds / static_cast<double>(line.ranks) : 0;
}

}  // namespace

nlohmann::json to_json(const StepLine& line) {
  return {{"type", "step"},
          {"step", line.step},
          {"stage", line.stage},
          {"sequence_length", line.sequence_length},
          {"loss", line.loss},
          {"grad_norm", line.gradient_norm},
          {"learning_rate", line.learning_rate},
          {"tokens", line.total_tokens},
          {"tokens_per_second", tokens_per_second(line)},
          {"step_ms", line.seconds * 1e3},
          {"peak_memory_bytes", line.peak_memory_bytes},
          {"tflops_per_rank", tflops_per_rank(line)},
          {"mfu", line.peak_flops > 0 ? nlohmann::json(tflops_per_rank(line) * 1e12 / line.peak_flops) : nlohmann::json()},
          {"moe_max_violation", line.max_violation}};
}

std::string to_text(const StepLine& line) {
  const double tflops = tflops_per_rank(line);
  const std::string rate =
      line.peak_flops > 0 ? fmt::format("{:.1f} TFLOP/s/rank mfu {:.1f} %", tflops, 100 * tflops * 1e12 / line.peak_flops)
      : tflops >= 1       ? fmt::format("{:.2f} TFLOP/s/rank", tflops)
                          : fmt::format("{:.2f} GFLOP/s/rank", tflops * 1e3);
  return fmt::format("step {}/{} [{}] loss {:.4f} grad_norm {:.3f} lr {:.2e} {:.0f} tok/s {} violation {:.2f} left {}", line.step,
                     line.total_steps, line.stage, line.loss, line.gradient_norm, line.learning_rate, tokens_per_second(line), rate,
                     line.max_violation, short_duration(line.seconds_left));
}

std::string to_note(const StepLine& line) {
  return fmt::format("loss {:.4f}  {:.0f} tok/s  left {}", line.loss, tokens_per_second(line), short_duration(line.seconds_left));
}

std::string short_duration(double seconds) {
  const auto total = static_cast<int64_t>(seconds + 0.5);
  if (total >= 3600) {
    return fmt::format("{}h{:02}m", total / 3600, total / 60 % 60);
  }
  return total >= 60 ? fmt::format("{}m{:02}s", total / 60, total % 60) : fmt::format("{}s", total);
}

}  // namespace longhaul
