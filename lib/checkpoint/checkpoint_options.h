// When checkpoints are written and how many are kept: the section `checkpoint` of a recipe.
#pragma once

#include <cstdint>

namespace longhaul {

struct CheckpointOptions {
  int64_t every_steps = 100;  // 0: only between stages, at the end and on a signal
  int64_t keep = 3;           // newest ones; those at the end of a stage are kept besides
  bool async = false;
};

template <class Visitor>
void describe(Visitor& v, CheckpointOptions& o) {
  v.field("every_steps", o.every_steps,
          "steps between checkpoints; 0 saves only at the end of a stage, at the end of the run and on a signal")
      .non_negative();
  v.field("keep", o.keep, "how many of the newest checkpoints to keep; the last one of every stage is kept besides").at_least(1);
  v.field("async", o.async, "write checkpoints while training goes on, where the trainer can; otherwise a save holds the step");
}

}  // namespace longhaul
