// What one step looks like in metrics.jsonl and to a person.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace longhaul {

struct StepLine {
  int64_t step = 0;
  int64_t total_steps = 0;
  std::string stage;
  int64_t sequence_length = 0;
  double loss = 0;           // nats a target
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  int64_t total_tokens = 0;  // since the start of the run
  int64_t step_tokens = 0;
  double seconds = 0;
  double seconds_left = 0;
  int64_t peak_memory_bytes = 0;  // of the rank with the most
  double flops = 0;               // of the step, over all ranks
  int64_t ranks = 1;
  double peak_flops = 0;          // a second, of one rank's device; 0: unknown
  double max_violation = 0;
};

[[nodiscard]] nlohmann::json to_json(const StepLine& line);
// "step 12/600 [8k] loss 5.1234 grad_norm 1.23 lr 3.00e-04 4211 tok/s 0.12 TFLOP/s/rank violation 0.31 left 4m10s"
[[nodiscard]] std::string to_text(const StepLine& line);
// "loss 5.1234  4211 tok/s  left 4m10s", beside the progress bar.
[[nodiscard]] std::string to_note(const StepLine& line);
// "1h02m", "4m10s", "12s"
[[nodiscard]] std::string short_duration(double seconds);

}  // namespace longhaul
