// See launch.h.
#include "train/launch.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/cast.h"
#include "checkpoint/find.h"
#include "comm/agreement.h"
#include "comm/launch_check.h"
#include "config/write.h"
#include "device/blas.h"
#include "train/placement.h"
#include "train/versions.h"

namespace longhaul {
namespace {

struct PlannedRecipe {
  Recipe recipe;
  RunPlan plan;
};

// Reads the recipe and plans it for `world` ranks, absent: for those of its first layout. All problems of both are one error.
PlannedRecipe read_and_plan(const LaunchOptions& options, std::optional<int64_t> world) {
  const std::filesystem::path path = options.recipe;
  config::Diagnostics diagnostics;
  PlannedRecipe read{.recipe = load_recipe(config::Document::from_file(path, options.overrides), path.parent_path(), diagnostics), .plan = {}};
  if (options.run_dir) {
    read.recipe.run.dir = *options.run_dir;
  }
  read.plan = make_plan(read.recipe, world, diagnostics);
  diagnostics.throw_if_any();
  return read;
}

// Throws on all ranks, for the first rank whose text is not that of rank 0.
void require_same(HostComm& world, const std::string& mine, std::string_view what, std::string_view remedy) {
  const std::vector<std::string> texts = world.all_gather_strings(mine);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts[0]) {
      rethrow_if_any(world, world.rank() == 0 ? std::make_exception_ptr(RecipeError("rank {} runs another {} than rank 0; {}", rank, what, remedy))
                                              : nullptr);
    }
  }
}

// Different files, flags or programs on different hosts would train nonsense or hang.
void require_same_job(HostComm& world, const Recipe& recipe) {
  require_same(world, config::dump(recipe), "recipe", "give all ranks the same file, --set and --run-dir");
  require_same(world, build_hash(), "build of this program", "install the same build on all hosts");
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

WatchdogOptions start_watch_options(const Env& env, const LaunchOptions& options) {
  WatchdogOptions watch{.rank = narrow<int>(launched_rank(env))};
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) {
    watch.host_name = host.data();
  }
  try {
    watch.limit = std::chrono::seconds(load_recipe(options.recipe, options.overrides).runtime.watchdog_seconds);
  } catch (const Error&) {  // reported when all ranks are there, once
  }
  return watch;
}

[[noreturn]] void end_start() {
  fmt::print(stderr, "the job did not start in time; look at the ranks that have not reported\n");
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(ErrorKind::Comm));  // MPI may be in the middle of its start, and mpirun ends the other ranks
}

}  // namespace

StartWatch::StartWatch(const Env& env, const LaunchOptions& options)
    : watchdog_(start_watch_options(env, options), journal_, {.report = Watchdog::report_to_stderr, .end_job = end_start}) {
  beat("waiting for all ranks to start MPI");
}

std::string check_recipe_plan(const LaunchOptions& options, std::optional<int64_t> world) {
  const PlannedRecipe read = read_and_plan(options, world);
  return versions_text("train") + "\n" + plan_table(read.recipe, read.plan);
}

std::string print_recipe(const LaunchOptions& options) {
  Recipe recipe = load_recipe(options.recipe, options.overrides);
  recipe.run.dir = options.run_dir.value_or(recipe.run.dir);
  return config::dump(recipe);
}

int launch(MpiSession& mpi, const Env& env, const LaunchOptions& options, std::unique_ptr<StartWatch> start) {
  HostComm& world = mpi.world();
  start->beat("reading the recipe on all ranks");
  blas::set_threads(1);
  const auto [recipe, plan] = run_agreed(world, [&] { return read_and_plan(options, world.size()); });
  require_same_job(world, recipe);
  start->beat("looking at devices and data on all ranks");
  const Device device = run_agreed(world, [&] {
    const Device mine = place_rank(recipe, world);
    require_memory(recipe, plan, world, mine);
    if (world.rank() == 0) {
      require_start(options.start);
    }
    for (const StagePlan& stage : plan.stages) {
      check_data(recipe, stage);
    }
    return mine;
  });
  start.reset();
  Trainer trainer(mpi, recipe, plan, device,
                  {.start = options.start, .existing = options.existing, .stop_at_step = options.stop_at_step, .fault = fault_from(env)});
  return trainer.run();
}

}  // namespace longhaul
