// bench: times operations and whole training steps. Flags and exit codes only; see operation.h, step.h and measure.h.
#include <CLI/CLI.hpp>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "device/blas.h"
#include "tools/bench/output.h"
#include "train/versions.h"

namespace {

using namespace longhaul;
using namespace longhaul::bench;

constexpr const char* kDescription =
    "Measures one operation, forward and backward, or a whole training step of a recipe, on one thread of the CPU: median\n"
    "time, operations, bytes, and the share of what the machine can do, which is measured first.";
constexpr const char* kFooter =
    "Examples: bench --op kda --shape T=8192,H=96,D=128\n"
    "          bench --op step --recipe recipes/quickstart.yaml\n"
    "Times are processor time, so that other programs do not count. FLOPs count a multiplication and an addition as two;\n"
    "bytes are inputs read once and outputs written once. Of the ceiling: the least time for the larger of the two, over\n"
    "the median.\n"
    "Exit codes: 0 done, 2 usage or recipe, 3 backend not available, 8 out of memory.";

struct Flags {
  std::vector<std::string> operations;
  std::string shape;
  std::string dtype = "fp32";
  std::string backend = "cpu";
  std::string direction = "both";
  StepOptions step;
  bool list = false;
  bool json = false;
};

// Returns the exit code of a run that ends here (help, version, bad usage), or -1.
[[nodiscard]] int parse(int argc, char** argv, Flags& flags) {
  CLI::App app{kDescription, "bench"};
  app.footer(kFooter);
  app.set_version_flag("--version", versions_text("bench"));
  CLI::Option* list = app.add_flag("--list", flags.list, "the operations and their sizes");
  CLI::Option* op = app.add_option("--op", flags.operations, "operation to measure: one of --list, step, or all; repeatable")->type_name("NAME")->take_all();
  app.add_option("--shape", flags.shape, "sizes by letter; the others keep their defaults")->type_name("T=8192,H=96,…");
  app.add_option("--dtype", flags.dtype, "type of inputs; the CPU computes in fp32 and fp64")->check(CLI::IsMember({"fp32", "fp64", "bf16"}))->capture_default_str();
  app.add_option("--backend", flags.backend, "where to compute")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_option("--direction", flags.direction, "which half to measure")->check(CLI::IsMember({"forward", "backward", "both"}))->capture_default_str();
  app.add_option("--seconds", flags.step.seconds, "time to measure for, each")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--recipe", flags.step.recipe, "with --op step: the recipe")->type_name("FILE");
  app.add_option("--set", flags.step.overrides, "with --op step: replace one key of the recipe; repeatable")->type_name("KEY=VALUE")->expected(1)->take_all();
  app.add_option("--stage", flags.step.stage, "with --op step: the stage, the first when left out")->type_name("NAME");
  app.add_flag("--json", flags.json, "one JSON object instead of the table");
  op->excludes(list);
  try {
    app.parse(argc, argv);
    if (flags.operations.empty() && !flags.list) {
      throw CLI::RequiredError("--op or --list");
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorKind::Recipe);
  }
  return -1;
}

void print_list() {
  for (const Operation& operation : all_operations()) {
    fmt::print("{:<14}{:<54}{}\n{:<14}{}\n", operation.name, operation.about, operation.sizes.text(), "", operation.letters);
  }
  fmt::print("{:<14}{:<54}{}\n", "step", "a training step of a recipe, and where its time goes", "--recipe FILE");
}

DType dtype_from(const Flags& flags) {
  if (flags.backend == "cuda") {
    throw DeviceError("--backend cuda: this program measures the CPU backend only");
  }
  if (flags.dtype == "bf16") {
    throw RecipeError("--dtype bf16: the CPU backend computes in fp32 or fp64");
  }
  return flags.dtype == "fp64" ? DType::F64 : DType::F32;
}

// The operations asked for, with their sizes.
std::vector<Operation> operations_from(const Flags& flags) {
  std::vector<Operation> chosen;
  std::string names;
  for (Operation& operation : all_operations()) {
    names += operation.name + ", ";
    for (const std::string& name : flags.operations) {
      if (name == operation.name || name == "all") {
        operation.sizes.set(flags.shape);
        chosen.push_back(operation);
      }
    }
  }
  for (const std::string& name : flags.operations) {
    const bool is_known = name == "all" || name == "step" ||
                          std::any_of(chosen.begin(), chosen.end(), [&](const Operation& operation) { return operation.name == name; });
    if (!is_known) {
      throw RecipeError("--op must be one of {}step, all; got \"{}\"", names, name);
    }
  }
  return chosen;
}

// Those asked for that the operation has; decoding has no backward.
std::vector<Direction> directions_from(const Flags& flags, const Operation& operation) {
  std::vector<Direction> chosen = operation.directions;
  if (flags.direction != "both") {
    const Direction unwanted = flags.direction == "forward" ? Direction::Backward : Direction::Forward;
    chosen.erase(std::remove(chosen.begin(), chosen.end(), unwanted), chosen.end());
  }
  return chosen;
}

Row measure_case(const Operation& operation, Direction direction, DType dtype, double seconds) {
  const std::unique_ptr<Case> work = operation.make(operation.sizes, dtype, direction);
  Row row{.operation = operation.name, .direction = direction, .sizes = operation.sizes.text(), .dtype = dtype, .flops = work->flops, .bytes = work->bytes, .timing = {}};
  row.timing = measure([&] { work->run(); }, seconds);
  return row;
}

bool wants_step(const Flags& flags) { return std::find(flags.operations.begin(), flags.operations.end(), "step") != flags.operations.end(); }

void run(const Flags& flags) {
  blas::set_threads(1);
  const DType dtype = dtype_from(flags);
  const std::vector<Operation> operations = operations_from(flags);
  if (wants_step(flags) && flags.step.recipe.empty()) {
    throw RecipeError("--op step needs --recipe FILE");
  }
  const Ceiling ceiling = measure_ceiling(dtype, 0.5);
  nlohmann::ordered_json out = {{"backend", "cpu"}, {"threads", 1}, {"ceiling", to_json(ceiling)}, {"results", nlohmann::ordered_json::array()}};
  const auto show = [&](const std::string& text) {
    if (!flags.json) {
      fmt::print("{}", text);
      std::fflush(stdout);
    }
  };
  show(ceiling_text(ceiling, dtype) + (operations.empty() ? "" : "\n" + head_text()));
  for (const Operation& operation : operations) {
    for (const Direction direction : directions_from(flags, operation)) {
      const Row row = measure_case(operation, direction, dtype, flags.step.seconds);
      show(row_text(row, ceiling));
      out["results"].push_back(to_json(row, ceiling));
    }
  }
  if (wants_step(flags)) {
    const StepMeasurement step = measure_step(flags.step);
    const Ceiling of_step = step.dtype == dtype ? ceiling : measure_ceiling(step.dtype, 0.5);
    show("\n" + step_text(step, of_step));
    out["results"].push_back(to_json(step, of_step));
  }
  if (flags.json) {
    fmt::print("{}\n", out.dump(2));
  }
}

[[nodiscard]] int fail(ErrorKind kind, const char* message) {
  fmt::print(stderr, "bench: {}: {}\n", to_string(kind), message);
  return static_cast<int>(kind);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Flags flags;
    if (const int code = parse(argc, argv, flags); code >= 0) {
      return code;
    }
    if (flags.list) {
      print_list();
    } else {
      run(flags);
    }
    return 0;
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::OutOfMemory, "the tensors of this shape do not fit; use a smaller one");
  } catch (const std::exception& error) {
    return fail(ErrorKind::Internal, error.what());
  }
}
