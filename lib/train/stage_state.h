// Everything that one rank holds while a stage of the recipe trains: groups, its part of the model, optimizer, balance,
// the data cursor and the pipeline. Built from the plan; filled by initialisation or from a checkpoint of any layout.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "balance/stage_balance.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "checkpoint/together.h"
#include "comm/groups.h"
#include "data/data_loader.h"
#include "data/validation_reader.h"
#include "model/parameters.h"
#include "optim/optimizer.h"
#include "parallel/pipeline.h"
#include "train/plan.h"

namespace longhaul {

// Counts over the whole run, the same on all ranks.
struct Progress {
  int64_t step = 0;    // completed updates
  int64_t tokens = 0;  // trained on
};

class StageState {
 public:
  // Collective over `world`. Opens the stage's data. Weights are unspecified until initialise or load. `device` is where this
  // rank computes.
  StageState(const Recipe& recipe, const StagePlan& plan, HostComm& world, CommJournal* journal, Device device);

  void initialise(uint64_t seed);
  // All state of a checkpoint; `continuation` says whether the data go on within a stage or enter this one.
  // Returns the run's progress at the checkpoint. Collective. CheckpointError, DataError.
  Progress load(HostComm& world, const std::filesystem::path& checkpoint, Continuation continuation);
  // The weights and selection biases only. Collective.
  void load_weights(HostComm& world, const std::filesystem::path& checkpoint);
  // What this rank saves; views of tensors of this state. Weights and optimizer state stay as they are until the next update.
  // Collective.
  [[nodiscard]] CheckpointContent content(const Progress& progress, CheckpointRole role, const std::string& recipe_text);

  [[nodiscard]] const StagePlan& plan() const noexcept { return plan_; }
  [[nodiscard]] BalanceCollectives balance_collectives();
  // One state a decoder layer of this rank; statistics are collected for training forwards only.
  [[nodiscard]] std::vector<RouterState> router_states(StageModel::Purpose purpose) const;

  // In order of construction; destroyed in reverse.
  std::unique_ptr<CudaContext> cuda;  // on a GPU
  Groups groups;
  StageModel model;
  ExecContext exec;
  Parameters parameters;
  Optimizer optimizer;
  StageBalance balance;
  Pipeline pipeline;
  Arena batch_memory;
  Tensor sums;  // f64 [2] on the device: the loss of this rank's targets; the squares of its gradients
  DataLoader loader;
  std::optional<ValidationReader> validation;

 private:
  [[nodiscard]] std::vector<Piece> pieces_of_model() const;
  [[nodiscard]] std::vector<Piece> pieces_of_optimizer() const;
  [[nodiscard]] std::vector<Piece> pieces_of_balance();
  // Does this rank write what several ranks hold alike?
  [[nodiscard]] bool owns(const ParameterSpec& spec) const;

  const StagePlan& plan_;
};

// Opens and closes the stage's data, to find what is wrong with it before anything is allocated. DataError, RecipeError.
void check_data(const Recipe& recipe, const StagePlan& plan);

// JSON document names inside a checkpoint.
inline constexpr const char* kDataDocument = "data";
inline constexpr const char* kProgressDocument = "progress";

}  // namespace longhaul
