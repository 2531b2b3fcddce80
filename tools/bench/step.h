// A whole training step of a recipe on one CPU rank: data, forward, backward, optimizer, balancing; and where it goes.
#pragma once

#include <string>
#include <vector>

#include "base/profile.h"
#include "tensor/dtype.h"
#include "tools/bench/measure.h"

namespace longhaul::bench {

struct StepOptions {
  std::string recipe;                  // path
  std::vector<std::string> overrides;  // --set
  std::string stage;                   // by name; empty: the first
  double seconds = 2;                  // to measure for
};

struct StepShare {
  std::string name;
  int64_t calls = 0;    // a step
  double seconds = 0;   // a step
};

struct StepMeasurement {
  std::string stage;
  DType dtype = DType::F32;
  int64_t parameters = 0;
  int64_t sequence_length = 0;
  int64_t tokens = 0;  // a step
  double flops = 0;    // a step, model/flops.h
  Timing timing;
  std::vector<StepShare> layers;      // by layer class; with "other" they add up to a step
  std::vector<StepShare> operations;  // by operation; with "other" they add up to a step
};

// Trains on random tokens, a document a sequence, which are written to a temporary directory: the recipe's own data are not
// read. Its layout becomes one rank, on the CPU. Errors: RecipeError.
[[nodiscard]] StepMeasurement measure_step(const StepOptions& options);

// The shares of `repeats` profiled steps that took `seconds` together. Exposed for tests.
[[nodiscard]] std::vector<StepShare> shares_by_layer(const Profile& profile, double seconds, int64_t repeats);
[[nodiscard]] std::vector<StepShare> shares_by_operation(const Profile& profile, double seconds, int64_t repeats);

}  // namespace longhaul::bench
