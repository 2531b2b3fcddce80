// Drives a run from its first step, or from a checkpoint, to its last, through all stages of the recipe.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/async_save.h"
#include "comm/mpi_session.h"
#include "comm/watchdog.h"
#include "metrics/run_log.h"
#include "train/plan.h"
#include "train/signals.h"
#include "train/stage_state.h"
#include "train/step.h"

namespace longhaul {

inline constexpr int kPreemptedExitCode = 75;

// Where a run starts.
struct StartFrom {
  enum class Kind : uint8_t {
    Fresh,    // initial weights; the run directory must not hold a run
    Newest,   // the newest complete checkpoint of the run directory, or initial weights
    Path,     // all state of a given checkpoint
    Weights,  // the weights of a given checkpoint: step 0, data from the start
  };
  Kind kind = Kind::Fresh;
  std::filesystem::path path;
};

struct TrainerOptions {
  StartFrom start;
  enum class Existing : uint8_t { Refuse, Overwrite } existing = Existing::Refuse;
  std::optional<int64_t> stop_at_step;
  FaultHook fault;  // for tests: called at points of a save
};

class Trainer {
 public:
  // All references must outlive the trainer.
  Trainer(MpiSession& mpi, const Recipe& recipe, const RunPlan& plan, Device device, TrainerOptions options);

  // Returns the exit code: 0, or 75 after a signal or the time limit with a checkpoint saved. Collective.
  [[nodiscard]] int run();

 private:
  enum class Reason : uint8_t { None, Finished, StopStep, Preempted };
  enum class SaveMode : uint8_t { Waited, Background };

  [[nodiscard]] Reason train_stages();

  void prepare_directory();
  [[nodiscard]] std::optional<std::filesystem::path> find_start();
  void enter_stage(const StagePlan& stage, const std::optional<std::filesystem::path>& checkpoint);
  [[nodiscard]] Reason train_stage();
  void one_step();
  void validate_now();
  // Writes, and returns when the checkpoint is there.
  [[nodiscard]] std::filesystem::path save(CheckpointRole role);
  // Begins to write one that training does not wait for.
  void save_in_background();
  // Ends a save that runs in the background.
  void finish_save();
  void report(const FinishedSave& save, SaveMode mode);
  [[nodiscard]] SaveOptions save_options();
  [[nodiscard]] Reason reason_to_stop();
  void log_header();
  void log_data_counters();
  void log_step(const StepResult& result, double seconds);

  MpiSession& mpi_;
  HostComm& world_;
  const Recipe& recipe_;
  const RunPlan& plan_;
  Device device_;  // where this rank computes
  double peak_flops_;  // a second of that device; 0: unknown
  TrainerOptions options_;
  std::filesystem::path directory_;
  std::string recipe_text_;
  RunLog log_;
  SignalFlag signals_;
  Watchdog watchdog_;
  Progress progress_;
  std::unique_ptr<StageState> stage_;
  AsyncSaver saver_;  // after the stage, whose tensors it reads
  std::optional<int64_t> saved_step_;  // of the last checkpoint of this process
  double started_ = 0;                 // seconds, monotonic
  double smooth_step_seconds_ = 0;     // for the time left
};

}  // namespace longhaul
