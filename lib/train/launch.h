// What `train` does after its flags are read: checks the recipe on all ranks, then runs it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "comm/watchdog.h"
#include "train/trainer.h"

namespace longhaul {

struct LaunchOptions {
  std::string recipe;                  // path
  std::vector<std::string> overrides;  // --set
  std::optional<std::string> run_dir;
  StartFrom start;
  TrainerOptions::Existing existing = TrainerOptions::Existing::Refuse;
  std::optional<int64_t> stop_at_step;
};

// The plan of the recipe for `world` ranks, or for the ranks that its layout needs. No MPI, no device, nothing written.
[[nodiscard]] std::string check_recipe_plan(const LaunchOptions& options, std::optional<int64_t> world);
// The resolved recipe as YAML.
[[nodiscard]] std::string print_recipe(const LaunchOptions& options);

// Bounds the time before training, in which ranks wait for each other without the trainer's watchdog: another rank may never have
// started, or hang on a file. After runtime.watchdog_seconds in one phase this rank says where it waits and ends the job with exit
// code 4; a rank that says nothing is one that did not come. The limit is 600 s where the recipe cannot be read.
class StartWatch {
 public:
  StartWatch(const Env& env, const LaunchOptions& options);

  void beat(std::string_view phase) { watchdog_.beat(phase); }

 private:
  CommJournal journal_;  // of nothing: the session's lives shorter
  Watchdog watchdog_;
};

// Trains. Collective; returns the exit code. Every rank throws the same error where one fails at an agreed point. `start` ends when
// training begins.
[[nodiscard]] int launch(MpiSession& mpi, const Env& env, const LaunchOptions& options, std::unique_ptr<StartWatch> start);

}  // namespace longhaul
