// See scan.h.
#include "tools/decay_scan/scan.h"

#include <fmt/format.h>

#include <cmath>

#include "tools/decay_scan/emulation.h"

namespace longhaul::decay {
namespace {

// The output that is furthest beyond its limit, or closest to it.
size_t worst_output(const ScanRow& row) {
  size_t worst = 0;
  for (size_t output = 1; output < kOutputs; ++output) {
    if (row.worst[output].error / kOutputLimits[output] > row.worst[worst].error / kOutputLimits[worst]) {
      worst = output;
    }
  }
  return worst;
}

std::string error_text(size_t output, double error, std::string_view problem) {
  return std::isinf(error) ? fmt::format("{} is not finite ({})", kOutputNames[output], problem)
                           : fmt::format("{} is off by {:.1e}, more than {:g} ({})", kOutputNames[output], error, kOutputLimits[output], problem);
}

// Notes which errors of a problem are beyond their limits, and whether range is to blame.
void note_excess(const ScanProblem& problem, const Errors& errors, const Outputs& exact, ScanRow& row) {
  std::optional<Errors> rounding;  // of the same arithmetic with unlimited exponents
  for (size_t output = 0; output < kOutputs; ++output) {
    if (errors[output] <= kOutputLimits[output]) {
      continue;
    }
    if (std::isfinite(errors[output]) && !rounding) {
      rounding = errors_of(emulated_outputs(problem, row.setting.tile, row.setting.precision, ExponentRange::Unlimited), exact);
    }
    const bool is_rounding = std::isfinite(errors[output]) && errors[output] <= kBlame * (*rounding)[output];
    std::string& text = is_rounding ? row.excess : row.fault;
    if (text.empty()) {
      text = is_rounding ? fmt::format("by rounding alone {} is off by {:.1e} ({})", kOutputNames[output], errors[output], problem.name)
                         : error_text(output, errors[output], problem.name);
    }
  }
}

void judge(ScanRow& row) {
  row.is_safe = row.range.overflows == 0 && row.fault.empty();
  if (row.range.overflows > 0) {
    row.reason = fmt::format("{} of {} operands overflow ({})", row.range.overflows, row.range.columns, row.overflow_in);
  } else if (!row.fault.empty()) {
    row.reason = row.fault;
  } else if (!row.excess.empty()) {
    row.reason = row.excess;
  } else {
    const size_t output = worst_output(row);
    row.reason = fmt::format("nearest to its limit is {}, {:.0f} % ({})", kOutputNames[output], 100 * row.worst[output].error / kOutputLimits[output],
                             row.worst[output].problem);
  }
}

// Measures a problem; where only the verdict counts, an overflow settles it.
void measure(const ScanProblem& problem, const Run& run, Effort effort, ScanRow& row) {
  const FactorRange range = factor_range(problem, row.setting.tile, row.setting.precision);
  if (range.overflows > 0 && row.range.overflows == 0) {
    row.overflow_in = problem.name;
  }
  row.range.add(range);
  if (effort == Effort::Verdict && row.range.overflows > 0) {
    return;
  }
  const Outputs exact = exact_outputs(problem);
  const Errors errors = errors_of(run(problem, row.setting), exact);
  for (size_t output = 0; output < kOutputs; ++output) {
    if (errors[output] > row.worst[output].error) {
      row.worst[output] = {.error = errors[output], .problem = problem.name};
    }
  }
  note_excess(problem, errors, exact, row);
}

}  // namespace

Run emulated_run() {
  return [](const ScanProblem& problem, const Setting& s) { return emulated_outputs(problem, s.tile, s.precision); };
}

std::vector<MakeProblem> synthetic_problems() {
  std::vector<MakeProblem> problems;
  for (const auto& [regime, name] : enum_names(Regime{})) {
    problems.push_back([regime = regime](const Setting& s) { return make_problem(regime, s.bound, s.tile, s.precision); });
  }
  return problems;
}

ScanRow scan(const Setting& setting, const std::vector<MakeProblem>& problems, const Run& run, Effort effort) {
  ScanRow row{.setting = setting};
  for (const MakeProblem& make : problems) {
    measure(make(setting), run, effort, row);
    judge(row);
    if (effort == Effort::Verdict && !row.is_safe) {
      break;
    }
  }
  return row;
}

FirstUnsafe first_unsafe(int64_t tile, Precision precision, const std::vector<MakeProblem>& problems, const Run& run) {
  FirstUnsafe result{.tile = tile, .precision = precision, .row = {}};
  result.overflow_bound = tile > 1 ? -std::log(overflow_of(precision)) / static_cast<double>(tile - 1) : -INFINITY;
  const auto row_at = [&](int64_t steps, Effort effort) {
    return scan({.bound = -kBoundStep * static_cast<double>(steps), .tile = tile, .precision = precision}, problems, run, effort);
  };
  int64_t safe = 0, unsafe = std::llround(-kLastBound / kBoundStep);
  if (row_at(unsafe, Effort::Verdict).is_safe) {
    return result;
  }
  while (unsafe - safe > 1) {
    const int64_t middle = (safe + unsafe) / 2;
    (row_at(middle, Effort::Verdict).is_safe ? safe : unsafe) = middle;
  }
  result.row = row_at(unsafe, Effort::Full);
  return result;
}

}  // namespace longhaul::decay
