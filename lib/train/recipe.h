// The recipe: all options of a run, each section's struct living with its owner, gathered here. Reading, defaults, rules
// and the resolved copy in the run directory all come from the describe() functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "balance/balance_options.h"
#include "checkpoint/checkpoint_options.h"
#include "comm/parallel_options.h"
#include "config/document.h"
#include "config/overlay.h"
#include "data/data_options.h"
#include "model/options.h"
#include "optim/optimizer_options.h"
#include "train/run_options.h"

namespace longhaul {

// One stage of the context curriculum. It starts from the weights, optimizer, balance and data state of the one before.
struct StageOptions {
  std::string name;
  int64_t sequence_length = 0;
  std::optional<int64_t> steps;  // one of steps and tokens
  std::optional<int64_t> tokens;
  int64_t global_batch_tokens = 0;
  config::Overlay<ParallelOptions> parallel;
  config::Overlay<OptimizerOptions> optimizer;
  config::Overlay<DataOptions> data;
  config::Overlay<BalanceOptions> balance;
};

template <class V>
void describe(V& v, StageOptions& o) {
  v.field("name", o.name, "shown in logs and metrics").required();
  v.field("sequence_length", o.sequence_length, "tokens of a packed sequence").required().at_least(1);
  v.field("steps", o.steps, "optimizer steps of the stage; or give tokens").at_least(1);
  v.field("tokens", o.tokens, "training tokens of the stage, rounded up to whole steps; or give steps").at_least(1);
  v.field("global_batch_tokens", o.global_batch_tokens, "tokens of one optimizer step over all ranks").required().at_least(1);
  v.field("parallel", o.parallel, "changes to the layout for this stage");
  v.field("optimizer", o.optimizer, "changes to the optimizer for this stage");
  v.field("data", o.data, "changes to the data for this stage");
  v.field("balance", o.balance, "changes to the balancing for this stage");
}

// The model section: the architecture's keys, or a released config.json that gives them.
struct ModelSection : ModelOptions {
  std::optional<std::string> config;  // path of a config.json; keys given beside it replace what it says
};

template <class V>
void describe(V& v, ModelSection& o) {
  v.field("config", o.config, "path of a released config.json; other keys of this section replace its values");
  describe(v, static_cast<ModelOptions&>(o));
}

struct Recipe {
  RunOptions run;
  ModelSection model;
  std::vector<StageOptions> stages;
  ParallelOptions parallel;
  DataOptions data;
  OptimizerOptions optimizer;
  BalanceOptions balance;
  CheckpointOptions checkpoint;
  ValidationOptions validation;
  PrecisionOptions precision;
  RuntimeOptions runtime;

  config::SourceMap positions;  // where each key was written, for errors found later; not an option
};

template <class V>
void describe(V& v, Recipe& o) {
  v.field("run", o.run, "name, directory and seed");
  v.field("model", o.model, "the architecture");
  v.field("stages", o.stages, "the context curriculum, in order").required();
  v.field("parallel", o.parallel, "how the work is cut over the ranks");
  v.field("data", o.data, "training and validation tokens");
  v.field("optimizer", o.optimizer, "optimizer and schedule");
  v.field("balance", o.balance, "balancing of the routers");
  v.field("checkpoint", o.checkpoint, "when checkpoints are written and how many are kept");
  v.field("validation", o.validation, "when and on how many tokens the validation loss is measured");
  v.field("precision", o.precision, "types of computation and master weights");
  v.field("runtime", o.runtime, "backend, communicator, determinism, watchdog, signals");
}

// Reads, resolves model.config (relative to the recipe's folder) and checks every rule within and across sections.
// Throws one RecipeError that lists all problems, each with file:line:column.
[[nodiscard]] Recipe load_recipe(const std::filesystem::path& path, const std::vector<std::string>& overrides);
[[nodiscard]] Recipe load_recipe(const config::Document& document, const std::filesystem::path& folder);
// The same, but problems are added to `diagnostics`; with any of them the recipe is for further checks only.
[[nodiscard]] Recipe load_recipe(const config::Document& document, const std::filesystem::path& folder, config::Diagnostics& diagnostics);

}  // namespace longhaul
