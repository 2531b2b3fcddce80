// What a recipe means for a world of a given size: layout, pipeline cut, batches and learning-rate span of every stage.
// Pure arithmetic, computed once before anything starts and never written back into the recipe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/parallel_grid.h"
#include "config/diagnostics.h"
#include "model/cut.h"
#include "train/recipe.h"

namespace longhaul {

struct StagePlan {
  std::string name;
  int64_t index = 0;  // in the recipe
  ParallelGrid grid;
  std::vector<StageRange> cut;  // [pipeline]
  DataOptions data;
  OptimizerOptions optimizer;
  BalanceOptions balance;
  int64_t sequence_length = 0;
  int64_t steps = 0;
  int64_t first_step = 0;  // steps of all stages before; the stage's updates are first_step + 1 … first_step + steps
  int64_t sequences_per_step = 0;          // over all ranks
  int64_t sequences_per_micro_batch = 0;   // of one data replica
  int64_t micro_batches = 0;               // of one data replica a step

  [[nodiscard]] int64_t last_step() const noexcept { return first_step + steps; }
  [[nodiscard]] int64_t tokens_per_step() const noexcept { return sequences_per_step * sequence_length; }
  [[nodiscard]] int64_t micro_batch_tokens() const noexcept { return sequences_per_micro_batch * sequence_length; }
};

struct RunPlan {
  std::vector<StagePlan> stages;
  int64_t total_steps = 0;
  int64_t total_tokens = 0;

  // The stage that performs update `step` (from 1).
  [[nodiscard]] const StagePlan& stage_of_step(int64_t step) const;
};

// Throws RecipeError when a stage does not fit the world. All stages are checked; every problem is in the message.
[[nodiscard]] RunPlan make_plan(const Recipe& recipe, int world_size);
// The same, but problems are added to `diagnostics`, which may hold those of the recipe: what rests on a key that is wrong is not
// checked. With any problem there is no plan. `world_size` absent: as many ranks as the first stage's layout has.
[[nodiscard]] RunPlan make_plan(const Recipe& recipe, std::optional<int64_t> world_size, config::Diagnostics& diagnostics);

// Bytes of one rank, by class.
struct RankMemory {
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t balance = 0;
  int64_t activations = 0;
  int64_t scratch = 0;
  int64_t in_flight = 0;  // micro-batches whose activations are held at once

  [[nodiscard]] int64_t total() const noexcept { return parameters + gradients + optimizer + balance + activations + scratch; }
};
// Of a rank of pipeline position `pipeline`; the others of that position are alike.
[[nodiscard]] RankMemory plan_memory(const Recipe& recipe, const StagePlan& stage, int pipeline);

// The plan as `train --check` and the start of a run print it: grid, cuts, tokens per step, memory per rank by class.
[[nodiscard]] std::string plan_table(const Recipe& recipe, const RunPlan& plan);

// Documents that memory for a micro-batch is planned with, when the data decides how many there are: arenas grow beyond.
[[nodiscard]] int64_t planned_documents(int64_t tokens);
// The type the backend computes in.
[[nodiscard]] DType compute_type(const Recipe& recipe);

}  // namespace longhaul
