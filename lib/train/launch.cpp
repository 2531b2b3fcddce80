// See launch.h.
#include "train/launch.h"

#include <unistd.h>

#include <charconv>
#include <csignal>

#include "base/cast.h"
#include "checkpoint/find.h"
#include "comm/agreement.h"
#include "config/write.h"
#include "device/blas.h"
#include "train/placement.h"
#include "train/versions.h"

namespace longhaul {
namespace {

Recipe read_recipe(const LaunchOptions& options) {
  Recipe recipe = load_recipe(options.recipe, options.overrides);
  if (options.run_dir) {
    recipe.run.dir = *options.run_dir;
  }
  return recipe;
}

// Ranks must run the same recipe: different files or flags on different hosts would train nonsense or hang.
void require_same_recipe(HostComm& world, const Recipe& recipe) {
  const std::vector<std::string> texts = world.all_gather_strings(config::dump(recipe));
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts[0]) {
      rethrow_if_any(world, world.rank() == 0 ? std::make_exception_ptr(RecipeError(
                                                    "rank {} runs another recipe than rank 0; give all ranks the same file, --set and --run-dir", rank))
                                              : nullptr);
    }
  }
}

// Before anything is written: a mistyped path must not leave a run directory behind.
void require_start(const StartFrom& start) {
  if (start.kind != StartFrom::Kind::Path && start.kind != StartFrom::Kind::Weights) {
    return;
  }
  if (const std::string problem = incomplete_reason(start.path); !problem.empty()) {
    throw CheckpointError("{} is not a checkpoint to start from: {}", start.path.string(), problem);
  }
}

// LONGHAUL_FAULT=POINT or LONGHAUL_FAULT=bytes:N ends the process with SIGKILL at a point of a save: for tests of what a
// crash leaves behind.
FaultHook fault_from(const Env& env) {
  const std::optional<std::string> fault = env.get("LONGHAUL_FAULT");
  if (!fault) {
    return {};
  }
  const std::string point = fault->substr(0, fault->find(':'));
  int64_t bytes = 0;
  if (point.size() < fault->size()) {
    std::from_chars(fault->data() + point.size() + 1, fault->data() + fault->size(), bytes);
  }
  return [point, bytes](std::string_view reached, int64_t written) {
    if (reached == point && written >= bytes) {
      kill(getpid(), SIGKILL);
    }
  };
}

}  // namespace

std::string check_recipe_plan(const LaunchOptions& options, std::optional<int64_t> world) {
  const Recipe recipe = read_recipe(options);
  const ParallelOptions first = recipe.stages.front().parallel.apply(recipe.parallel);
  return versions_text("train") + "\n" + plan_table(recipe, make_plan(recipe, narrow<int>(world.value_or(first.pipeline * first.data * first.context))));
}

std::string print_recipe(const LaunchOptions& options) { return config::dump(read_recipe(options)); }

int launch(MpiSession& mpi, const Env& env, const LaunchOptions& options) {
  HostComm& world = mpi.world();
  blas::set_threads(1);
  const Recipe recipe = run_agreed(world, [&] { return read_recipe(options); });
  require_same_recipe(world, recipe);
  Device device;
  const RunPlan plan = run_agreed(world, [&] {
    RunPlan result = make_plan(recipe, world.size());
    device = place_rank(recipe, world);
    require_memory(recipe, result, world, device);
    if (world.rank() == 0) {
      require_start(options.start);
    }
    for (const StagePlan& stage : result.stages) {
      check_data(recipe, stage);
    }
    return result;
  });
  Trainer trainer(mpi, recipe, plan, device,
                  {.start = options.start, .existing = options.existing, .stop_at_step = options.stop_at_step, .fault = fault_from(env)});
  return trainer.run();
}

}  // namespace longhaul
