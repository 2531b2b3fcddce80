// What `train` does after its flags are read: checks the recipe on all ranks, then runs it.
#pragma once

#include <optional>
#include <string>
#include <vector>

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
// Trains. Collective; returns the exit code. Every rank throws the same error where one fails at an agreed point.
[[nodiscard]] int launch(MpiSession& mpi, const Env& env, const LaunchOptions& options);

}  // namespace longhaul
