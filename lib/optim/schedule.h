// The learning rate as a pure function of the step: nothing to save, nothing to get wrong on resume.
#pragma once

#include <cstdint>

#include "optim/optimizer_options.h"

namespace longhaul {

// Rate of update `step`, counted from 1 over the whole run of `total_steps` updates.
//   warm-up:  peak * step / warmup_steps
//   cosine:   min + (peak - min) (1 + cos(pi t)) / 2 with t from 0 after the warm-up to 1 at total_steps
//   wsd:      peak, then linear to min over the last decay_fraction of the run
[[nodiscard]] double learning_rate_at(const OptimizerOptions& options, int64_t step, int64_t total_steps);

}  // namespace longhaul
