// A run in a few numbers: what the head of the report says.
#pragma once

#include <string>

#include "report/run_record.h"

namespace longhaul::report {

struct Summary {
  int64_t last_step = 0;  // 0: none was recorded
  double tokens = kMissing;
  double train_loss = kMissing;  // mean of the last `train_loss_steps` steps, because one step is noise
  int64_t train_loss_steps = 0;
  double validation_loss = kMissing;  // of the last validation
  double bits_per_byte = kMissing;
  int64_t validation_step = 0;
  double best_validation_loss = kMissing;
  int64_t best_validation_step = 0;
  double tokens_per_second = kMissing;  // median over steps
  double step_seconds = kMissing;       // median
  double tflops_per_rank = kMissing;    // median
  double mfu = kMissing;                // median
  double peak_memory_bytes = kMissing;  // largest
  double training_seconds = kMissing;   // sum of step times
  double checkpoint_seconds = kMissing;  // sum of saves
};
[[nodiscard]] Summary summarise(const RunRecord& run);

// "finished", "preempted at step 40", "no end was recorded: still running, or killed", …
struct Status {
  std::string text;
  bool is_finished = false;
};
[[nodiscard]] Status status_of(const RunRecord& run);

}  // namespace longhaul::report
