// One optimizer step, and one validation: the order of events in which a model of this kind is trained.
#pragma once

#include <cstdint>
#include <functional>

#include "comm/watchdog.h"
#include "train/stage_state.h"

namespace longhaul {

struct StepResult {
  double loss = 0;           // nats a target, over the global batch
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  int64_t targets = 0;       // of the global batch
  double max_violation = 0;  // largest load above the mean of any expert of any layer, relative to the mean
  bool balance_updated = false;
};

// Update number `step` (from 1) of a run of `total_steps`. Collective over all ranks. Throws DivergenceError on all ranks,
// before the update, when loss or gradient norm is not finite. `before_update` is called when weights and optimizer state are
// about to change; until then nothing changes them.
[[nodiscard]] StepResult train_step(StageState& state, HostComm& world, Watchdog& watchdog, int64_t step, int64_t total_steps,
                                    const std::function<void()>& before_update = {});

struct ValidationResult {
  double loss = 0;  // nats a target
  int64_t targets = 0;
};
// Over the stage's validation data, which must be there. Collective. Changes no state.
[[nodiscard]] ValidationResult validate(StageState& state, Watchdog& watchdog);

}  // namespace longhaul
