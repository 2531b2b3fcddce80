// balance_canary: which way of balancing a recipe's routers to promote. Flags, table and exit codes only; see canary.h.
#include <CLI/CLI.hpp>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/balance_canary/canary.h"
#include "train/recipe.h"
#include "train/versions.h"

namespace {

using namespace longhaul;

// More tokens a step show nothing new and take long; what chance leaves is computed for the tokens that are used.
constexpr int64_t kMostTokens = 65536;

constexpr const char* kDescription =
    "Tries ways of balancing on a synthetic router of the recipe's size, whose preferences are skewed and drift, and says\n"
    "for each method and cadence how fast the load evens out and whether it stays even. Needs no data and no MPI.";
constexpr const char* kFooter =
    "Methods: quantile, sign, none. The method auxiliary (a loss on the router's probabilities) is not offered: its row\n"
    "says so. Violation is that of the busiest expert, max / mean - 1.\n"
    "Exit codes: 0 done, whatever the verdicts; 2 usage or recipe.";

struct Flags {
  std::string recipe;
  std::vector<std::string> overrides;
  int64_t steps = 200;
  std::vector<int64_t> cadences = {1, 4, 16};
  std::vector<std::string> methods = {"quantile", "sign", "none"};
  int64_t tokens = 0;  // 0: the recipe's
  double skew = 1.5;
  double drift = 0.005;
  bool json = false;
};

// Returns the exit code of a run that ends here (help, version, bad usage), or -1.
[[nodiscard]] int parse(int argc, char** argv, Flags& flags) {
  CLI::App app{kDescription, "balance_canary"};
  app.footer(kFooter);
  app.set_version_flag("--version", versions_text("balance_canary"));
  app.add_option("--recipe", flags.recipe, "the recipe: experts, top-k, tokens a step, balance")->required()->type_name("FILE");
  app.add_option("--set", flags.overrides, "replace one key of the recipe; repeatable")->type_name("KEY=VALUE")->expected(1)->take_all();
  app.add_option("--steps", flags.steps, "steps to simulate")->type_name("N")->check(CLI::Range(4, 1000000))->capture_default_str();
  app.add_option("--cadences", flags.cadences, "steps from one update of the biases to the next")->delimiter(',')->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--methods", flags.methods, "ways of balancing")->delimiter(',')->check(CLI::IsMember({"quantile", "sign", "none", "auxiliary"}))->capture_default_str();
  app.add_option("--tokens", flags.tokens, "tokens a step; the first stage's, at most 65536, when left out")->type_name("N")->check(CLI::PositiveNumber);
  app.add_option("--skew", flags.skew, "standard deviation of the experts' offsets, in logits")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--drift", flags.drift, "how fast the offsets turn into others, radians a step")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_flag("--json", flags.json, "one JSON object instead of the table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorKind::Recipe);
  }
  return -1;
}

CanaryOptions options_from(const Flags& flags) {
  const Recipe recipe = load_recipe(flags.recipe, flags.overrides);
  if (recipe.model.num_experts == 0) {
    throw RecipeError("{}: the model has no experts (model.num_experts is 0), so there is nothing to balance", flags.recipe);
  }
  const int64_t tokens = flags.tokens > 0 ? flags.tokens : std::min(recipe.stages.front().global_batch_tokens, kMostTokens);
  return {.router = {.experts = recipe.model.num_experts, .skew = flags.skew, .drift = flags.drift, .seed = static_cast<uint64_t>(recipe.run.seed)},
          .top_k = recipe.model.num_experts_per_token,
          .tokens = tokens,
          .steps = flags.steps,
          .balance = recipe.balance};
}

// Every method at every cadence. The bias of method none never changes, so it has one row.
std::vector<CanaryVariant> variants_from(const Flags& flags) {
  std::vector<CanaryVariant> variants;
  for (const std::string& name : flags.methods) {
    const std::optional<BalanceMethod> method = enum_value<BalanceMethod>(name);
    for (const int64_t cadence : flags.cadences) {
      if (method && (*method != BalanceMethod::None || cadence == flags.cadences.front())) {
        variants.push_back({.method = *method, .cadence = cadence});
      }
    }
  }
  return variants;
}

bool asks_for_auxiliary(const Flags& flags) { return std::find(flags.methods.begin(), flags.methods.end(), "auxiliary") != flags.methods.end(); }

std::string rule_text(const CanaryOptions& options) {
  return fmt::format("promote: the mean violation of the last quarter is at most {:.2f} = 0.1 + twice what chance leaves", promotion_bar(options));
}

void print_table(const CanaryOptions& o, const std::vector<CanaryRow>& rows, bool with_auxiliary) {
  const double quota = static_cast<double>(o.tokens * o.top_k) / static_cast<double>(o.router.experts);
  fmt::print("{} experts, top {}, {} tokens and {:.0f} routes an expert a step, {} steps\n", o.router.experts, o.top_k, o.tokens, quota, o.steps);
  fmt::print("offsets of the experts: standard deviation {} logits, turning by {} rad a step; chance leaves a violation of about {:.2f}\n\n",
             o.router.skew, o.router.drift, chance_violation(o.router.experts, quota));
  fmt::print("{:<10}{:>8}{:>10}{:>12}{:>12}{:>15}{:>13}  {}\n", "method", "cadence", "start", "below 0.5", "below 0.2", "last quarter", "bias range",
             "verdict");
  const auto step_text = [](const std::optional<int64_t>& step) { return step ? fmt::format("step {}", *step) : std::string("never"); };
  for (const CanaryRow& row : rows) {
    const bool is_none = row.variant.method == BalanceMethod::None;
    fmt::print("{:<10}{:>8}{:>10.2f}{:>12}{:>12}{:>15.3f}{:>13.3f}  {}\n", enum_name(row.variant.method),
               is_none ? "-" : std::to_string(row.variant.cadence), row.start, step_text(row.below_half), step_text(row.below_fifth), row.settled,
               row.bias_range, row.is_promoted ? "promote" : "hold");
  }
  if (with_auxiliary) {
    fmt::print("{:<10}{:>8}{:>10}{:>12}{:>12}{:>15}{:>13}  hold: not offered\n", "auxiliary", "-", "-", "-", "-", "-", "-");
  }
  fmt::print("\n{}\n", rule_text(o));
}

void print_json(const CanaryOptions& o, const std::vector<CanaryRow>& rows, bool with_auxiliary) {
  nlohmann::ordered_json out = {{"experts", o.router.experts}, {"top_k", o.top_k},        {"tokens", o.tokens}, {"steps", o.steps},
                                {"skew", o.router.skew},       {"drift", o.router.drift}, {"rule", rule_text(o)}, {"bar", promotion_bar(o)}};
  const auto step_value = [](const std::optional<int64_t>& step) { return step ? nlohmann::ordered_json(*step) : nlohmann::ordered_json(nullptr); };
  out["rows"] = nlohmann::ordered_json::array();
  for (const CanaryRow& row : rows) {
    out["rows"].push_back({{"method", enum_name(row.variant.method)},
                           {"cadence", row.variant.cadence},
                           {"start_violation", row.start},
                           {"steps_below_0.5", step_value(row.below_half)},
                           {"steps_below_0.2", step_value(row.below_fifth)},
                           {"final_violation", row.settled},
                           {"bias_range", row.bias_range},
                           {"verdict", row.is_promoted ? "promote" : "hold"}});
  }
  if (with_auxiliary) {
    out["rows"].push_back({{"method", "auxiliary"}, {"verdict", "hold"}, {"reason", "not offered"}});
  }
  fmt::print("{}\n", out.dump(2));
}

[[nodiscard]] int fail(ErrorKind kind, const char* message) {
  fmt::print(stderr, "balance_canary: {}: {}\n", to_string(kind), message);
  return static_cast<int>(kind);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Flags flags;
    if (const int code = parse(argc, argv, flags); code >= 0) {
      return code;
    }
    const CanaryOptions options = options_from(flags);
    const std::vector<CanaryRow> rows = run_canary(options, variants_from(flags));
    (flags.json ? print_json : print_table)(options, rows, asks_for_auxiliary(flags));
    return 0;
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::exception& error) {
    return fail(ErrorKind::Internal, error.what());
  }
}
