// train: runs a recipe. Flags and exit codes only; what happens is in lib/train/launch.h and trainer.h.
#include <CLI/CLI.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/launch_check.h"
#include "train/launch.h"
#include "train/versions.h"

namespace {

using namespace longhaul;

struct Flags {
  LaunchOptions launch;
  bool check = false;
  bool print_recipe = false;
  std::optional<int64_t> world;
};

// Returns the exit code of a run that ends here (help, version, bad usage), or -1.
[[nodiscard]] int parse(int argc, char** argv, Flags& flags) {
  CLI::App app{"Trains a sparse mixture-of-experts model from a recipe: mpirun -n N train --recipe FILE.", "train"};
  std::string resume_from;
  std::string init_from;
  bool resume = false;
  bool overwrite = false;
  app.set_version_flag("--version", versions_text("train"));
  app.add_option("--recipe", flags.launch.recipe, "the recipe, YAML")->required()->type_name("FILE");
  app.add_option("--set", flags.launch.overrides, "replace one key of the recipe, such as stages.0.steps=5; repeatable")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  app.add_option("--run-dir", flags.launch.run_dir, "run directory instead of the recipe's")->type_name("DIR");
  CLI::Option* resume_flag = app.add_flag("--resume", resume, "go on from the newest complete checkpoint of the run directory, if any");
  CLI::Option* from_flag = app.add_option("--resume-from", resume_from, "go on from this checkpoint, all state")->type_name("PATH");
  CLI::Option* init_flag = app.add_option("--init-from", init_from, "take the weights of this checkpoint; step 0, data from the start")->type_name("PATH");
  CLI::Option* overwrite_flag = app.add_flag("--overwrite", overwrite, "start afresh in a directory that holds a run");
  resume_flag->excludes(from_flag)->excludes(init_flag)->excludes(overwrite_flag);
  from_flag->excludes(init_flag)->excludes(overwrite_flag);
  app.add_flag("--check", flags.check, "print the plan: layout, cuts, memory; needs no MPI and no GPU, and writes nothing");
  app.add_option("--world", flags.world, "with --check: ranks to plan for")->type_name("N")->check(CLI::PositiveNumber);
  app.add_flag("--print-recipe", flags.print_recipe, "print the resolved recipe");
  app.add_option("--stop-at-step", flags.launch.stop_at_step, "save a checkpoint after this global step and exit 0")->type_name("N")->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorKind::Recipe);
  }
  if (resume) {
    flags.launch.start = {.kind = StartFrom::Kind::Newest, .path = {}};
  } else if (!resume_from.empty()) {
    flags.launch.start = {.kind = StartFrom::Kind::Path, .path = resume_from};
  } else if (!init_from.empty()) {
    flags.launch.start = {.kind = StartFrom::Kind::Weights, .path = init_from};
  }
  flags.launch.existing = overwrite ? TrainerOptions::Existing::Overwrite : TrainerOptions::Existing::Refuse;
  return -1;
}

[[nodiscard]] int fail(ErrorKind kind, const char* message) {
  fmt::print(stderr, "train: {}: {}\n", to_string(kind), message);
  return static_cast<int>(kind);
}

[[nodiscard]] int train(const Flags& flags) {
  const Env env = Env::process();
  auto start = std::make_unique<StartWatch>(env, flags.launch);
  MpiSession mpi(env);
  try {
    return launch(mpi, env, flags.launch, std::move(start));
  } catch (...) {
    return mpi.fail(std::current_exception());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Flags flags;
    if (const int code = parse(argc, argv, flags); code >= 0) {
      return code;
    }
    if (flags.print_recipe || flags.check) {
      if (launched_rank(Env::process()) != 0) {
        return 0;  // under mpirun one rank speaks
      }
      fmt::print("{}", flags.print_recipe ? print_recipe(flags.launch) : check_recipe_plan(flags.launch, flags.world));
      return 0;
    }
    return train(flags);
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::exception& error) {
    return fail(ErrorKind::Internal, error.what());
  }
}
