// Verdicts: is a lower bound of the log-decay safe for dense tiles of a size in a precision? And where does safety end?
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/decay_scan/factor_range.h"
#include "tools/decay_scan/problem.h"

namespace longhaul::decay {

struct Setting {
  double bound = -5;  // lower bound of the log-decay a token
  int64_t tile = 16;
  Precision precision = Precision::Bf16;
};

// Computes a problem's outputs in the way that is judged: the emulation, or the kernels of a GPU.
using Run = std::function<Outputs(const ScanProblem&, const Setting&)>;
[[nodiscard]] Run emulated_run();

// A problem to judge by at the setting.
using MakeProblem = std::function<ScanProblem(const Setting&)>;
[[nodiscard]] std::vector<MakeProblem> synthetic_problems();

// The worst over problems of one output, and where.
struct Worst {
  double error = 0;
  std::string problem;
};

// Errors beyond a limit count against a bound where range is to blame: where the same arithmetic with unlimited exponents
// errs less by this factor. What remains there is rounding, which no bound changes.
inline constexpr double kBlame = 1.5;

struct ScanRow {
  Setting setting;
  FactorRange range;
  std::array<Worst, kOutputs> worst;
  std::string overflow_in;  // the problem with the first overflow
  std::string fault;        // the first error beyond its limit for which range is to blame
  std::string excess;       // the first that comes from rounding alone
  bool is_safe = true;
  std::string reason;       // of the verdict
};

enum class Effort : uint8_t {
  Full,     // all problems
  Verdict,  // until one is unsafe
};

// Unsafe: an operand overflows, or an output is not finite, or is further from fp64 than kOutputLimits because of range.
// Underflows are counted only; where they matter, an error shows it.
[[nodiscard]] ScanRow scan(const Setting& setting, const std::vector<MakeProblem>& problems, const Run& run, Effort effort = Effort::Full);

struct FirstUnsafe {
  int64_t tile = 16;
  Precision precision = Precision::Bf16;
  std::optional<ScanRow> row;  // at the first unsafe bound; none up to kLastBound
  double overflow_bound = 0;   // where the largest reciprocal, e^{-bound (tile - 1)}, exceeds the type
};
inline constexpr double kBoundStep = 0.01;
inline constexpr double kLastBound = -40;
// By halving on the grid of kBoundStep, which takes for granted that a bound below an unsafe one is unsafe.
[[nodiscard]] FirstUnsafe first_unsafe(int64_t tile, Precision precision, const std::vector<MakeProblem>& problems, const Run& run);

}  // namespace longhaul::decay
