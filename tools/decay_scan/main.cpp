// decay_scan: which lower bounds of the log-decay are safe for dense tiles. Flags, tables and exit codes only; see scan.h.
#include <CLI/CLI.hpp>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/decay_scan/checkpoint_problems.h"
#include "tools/decay_scan/gpu_run.h"
#include "tools/decay_scan/output.h"
#include "train/versions.h"

namespace {

using namespace longhaul;
using namespace longhaul::decay;

constexpr const char* kDescription =
    "Measures whether Kimi Delta Attention with dense tiles is safe for a lower bound of its log-decay: the range of the\n"
    "reciprocal scaling factor, what overflows or underflows in 16 bits, and the errors of outputs and gradients against fp64,\n"
    "on gates that are the worst for the bound and, with --checkpoint, on those that its layers make of text.";
constexpr const char* kFooter =
    "Example: decay_scan --bounds -1,-2,-5,-8 --tiles 16,64 --dtypes bf16,fp16\n"
    "--backend cpu emulates a kernel's arithmetic in both types and any tile; cuda runs the library's kernels where they are\n"
    "compiled for it (bf16, 16 rows). The last table has the first unsafe bound of each tile and type, in steps of 0.01.\n"
    "Exit codes: 0 done, whatever the verdicts; 2 usage, 3 no GPU, 5 checkpoint, 6 data, 7 released model, 8 out of memory.";

struct Flags {
  std::vector<double> bounds = {-1, -2, -5, -8};
  std::vector<int64_t> tiles = {16, 64};
  std::vector<std::string> dtypes = {"bf16", "fp16"};
  std::string backend = "cpu";
  CheckpointSource checkpoint;
  bool json = false;
};

// Returns the exit code of a run that ends here (help, version, bad usage), or -1.
[[nodiscard]] int parse(int argc, char** argv, Flags& flags) {
  CLI::App app{kDescription, "decay_scan"};
  app.footer(kFooter);
  app.set_version_flag("--version", versions_text("decay_scan"));
  app.add_option("--bounds", flags.bounds, "lower bounds of the log-decay a token")->delimiter(',')->check(CLI::Range(kLastBound, -0.01))->capture_default_str();
  app.add_option("--tiles", flags.tiles, "rows of a dense tile")->delimiter(',')->check(CLI::IsMember({4, 8, 16, 32, 64, 128}))->capture_default_str();
  app.add_option("--dtypes", flags.dtypes, "types of a product's operands")->delimiter(',')->check(CLI::IsMember({"bf16", "fp16"}))->capture_default_str();
  app.add_option("--backend", flags.backend, "cpu: emulated; cuda: the library's kernels")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  CLI::Option* checkpoint = app.add_option("--checkpoint", flags.checkpoint.path, "a checkpoint, run directory or released model, whose gates to scan too")->type_name("PATH");
  app.add_option("--data", flags.checkpoint.data, "with --checkpoint: tokens to read; random ones when left out")->type_name("PREFIX")->needs(checkpoint);
  app.add_option("--tokens", flags.checkpoint.tokens, "with --checkpoint: how many")->check(CLI::Range(1, 65536))->needs(checkpoint)->capture_default_str();
  app.add_flag("--json", flags.json, "one JSON object instead of the tables");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorKind::Recipe);
  }
  return -1;
}

// Prints rows as they come, or collects them as JSON.
class Printer {
 public:
  explicit Printer(bool json) : json_(json) {}

  void begin(const std::string& key, const std::string& title, const std::string& head) {
    key_ = key;
    out_[key_] = nlohmann::ordered_json::array();
    say(fmt::format("{}{}\n{}", is_first_ ? "" : "\n", title, head));
    is_first_ = false;
  }
  void row(const std::string& text, nlohmann::ordered_json json) {
    out_[key_].push_back(std::move(json));
    say(text);
  }
  void end() const {
    if (json_) {
      fmt::print("{}\n", out_.dump(2));
    }
  }
  nlohmann::ordered_json& json() { return out_; }

 private:
  void say(const std::string& text) const {
    if (!json_) {
      fmt::print("{}", text);
      std::fflush(stdout);
    }
  }

  bool json_;
  bool is_first_ = true;
  std::string key_;
  nlohmann::ordered_json out_;
};

struct Case {
  int64_t tile;
  Precision precision;
};

class Scanner {
 public:
  explicit Scanner(const Flags& flags) : flags_(flags), is_gpu_(flags.backend == "cuda"), run_(is_gpu_ ? gpu_run() : emulated_run()), printer_(flags.json) {
    for (const int64_t tile : flags.tiles) {
      for (const std::string& name : flags.dtypes) {
        cases_.push_back({.tile = tile, .precision = name == "bf16" ? Precision::Bf16 : Precision::Fp16});
      }
    }
    printer_.json() = {{"backend", flags.backend}};
  }

  void run() {
    std::optional<CheckpointProblems> checkpoint;
    if (!flags_.checkpoint.path.empty()) {
      checkpoint.emplace(flags_.checkpoint);  // before the scan, which takes longer than finding out that it is not there
    }
    const std::vector<MakeProblem> synthetic = synthetic_problems();
    printer_.begin("synthetic", "synthetic extremes", head_text());
    scan_bounds(synthetic, flags_.bounds);
    if (checkpoint) {
      printer_.begin("layers", "gates of " + checkpoint->title(), layer_head_text());
      for (const LayerGates& layer : checkpoint->layers()) {
        printer_.row(text_of(layer), to_json(layer));
      }
      printer_.begin("checkpoint", checkpoint->scaling_text(), head_text());
      scan_bounds(checkpoint->problems(), checkpoint->bounds(flags_.bounds));
    }
    printer_.begin("first_unsafe", "first unsafe bound, on the synthetic extremes", first_unsafe_head_text());
    for (const Case& c : cases_) {
      if (is_offered(c)) {
        const FirstUnsafe found = first_unsafe(c.tile, c.precision, synthetic, run_);
        printer_.row(text_of(found), to_json(found));
      }
    }
    printer_.end();
  }

 private:
  [[nodiscard]] bool is_offered(const Case& c) const { return !is_gpu_ || is_for_gpu(c.tile, c.precision); }

  void scan_bounds(const std::vector<MakeProblem>& problems, const std::vector<double>& bounds) {
    for (const Case& c : cases_) {
      for (const double bound : bounds) {
        const Setting setting{.bound = bound, .tile = c.tile, .precision = c.precision};
        if (!is_offered(c)) {
          printer_.row(not_offered_text(setting), not_offered_json(setting));
          continue;
        }
        const ScanRow row = scan(setting, problems, run_);
        nlohmann::ordered_json json = to_json(row);
        std::string text = row_text(row);
        if (is_gpu_) {
          const bool is_safe_emulated = scan(setting, problems, emulated_run()).is_safe;
          json["emulated_verdict"] = is_safe_emulated ? "safe" : "unsafe";
          text.insert(text.size() - 1, fmt::format("; emulated: {}", is_safe_emulated ? "safe" : "unsafe"));
        }
        printer_.row(text, std::move(json));
      }
    }
  }

  const Flags& flags_;
  bool is_gpu_;
  Run run_;
  Printer printer_;
  std::vector<Case> cases_;
};

[[nodiscard]] int fail(ErrorKind kind, const char* message) {
  fmt::print(stderr, "decay_scan: {}: {}\n", to_string(kind), message);
  return static_cast<int>(kind);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Flags flags;
    if (const int code = parse(argc, argv, flags); code >= 0) {
      return code;
    }
    Scanner(flags).run();
    return 0;
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::OutOfMemory, "the problem does not fit into memory");
  } catch (const std::exception& error) {
    return fail(ErrorKind::Internal, error.what());
  }
}
