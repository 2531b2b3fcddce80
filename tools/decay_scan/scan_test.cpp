// The ranges are those of the closed form, the emulation is the operator but for rounding, and clear cases get clear verdicts.
#include "tools/decay_scan/scan.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tools/decay_scan/emulation.h"

namespace longhaul::decay {
namespace {

using Catch::Approx;

FactorRange range_of(Regime regime, double bound, int64_t tile, Precision precision) {
  return factor_range(make_problem(regime, bound, tile, precision), tile, precision);
}

TEST_CASE("the largest reciprocal is e^{-bound (tile - 1)} with all gates at the bound", "[tools]") {
  for (const int64_t tile : {4, 16, 64}) {
    for (const double bound : {-0.5, -1.0, -5.0}) {
      INFO("tile " << tile << ", bound " << bound);
      CHECK(range_of(Regime::AtBound, bound, tile, Precision::Bf16).log_reciprocal == Approx(-bound * static_cast<double>(tile - 1)));
    }
  }
  CHECK(range_of(Regime::None, -5, 16, Precision::Bf16).log_reciprocal == 0);
  CHECK(range_of(Regime::Alternating, -5, 16, Precision::Bf16).log_reciprocal == Approx(40));  // 8 of 16 rows, the anchor is none of them
  CHECK(range_of(Regime::LateRows, -5, 16, Precision::Bf16).log_reciprocal == Approx(65));     // rows 1 to 13
}

TEST_CASE("operands overflow from the closed form's bound on, and not before", "[tools]") {
  // One channel that is 1: operands are the reciprocals themselves, and only the last row of a tile has the largest.
  const double fp16_end = std::log(65520.0) / 15;
  CHECK(range_of(Regime::OneChannel, -(fp16_end - 0.001), 16, Precision::Fp16).overflows == 0);
  CHECK(range_of(Regime::OneChannel, -(fp16_end + 0.001), 16, Precision::Fp16).overflows > 0);
  // e^-87.34 is the smallest normal float; a decay below it has no reciprocal.
  CHECK(range_of(Regime::OneChannel, -87.2 / 15, 16, Precision::Bf16).overflows == 0);
  CHECK(range_of(Regime::OneChannel, -87.5 / 15, 16, Precision::Bf16).overflows > 0);
  CHECK(range_of(Regime::None, -5, 64, Precision::Fp16).underflows == 0);
  CHECK(range_of(Regime::AtBound, -1, 16, Precision::Fp16).underflows > 0);
}

TEST_CASE("the emulation is the operator: without limits and with fine rounding, errors shrink with the unit of rounding", "[tools]") {
  for (const Regime regime : {Regime::AtBound, Regime::None, Regime::LateRows, Regime::Random}) {
    for (const int64_t tile : {1, 16, 64, 128}) {
      const ScanProblem p = make_problem(regime, -1, tile, Precision::Bf16);
      const Outputs exact = exact_outputs(p);
      const Errors coarse = errors_of(emulated_outputs(p, tile, Precision::Bf16, ExponentRange::Unlimited), exact);
      const Errors fine = errors_of(emulated_outputs(p, tile, Precision::Fp16, ExponentRange::Unlimited), exact);
      for (size_t output = 0; output < kOutputs; ++output) {
        INFO(p.name << ", tile " << tile << ", " << kOutputNames[output] << ": " << coarse[output] << ", " << fine[output]);
        CHECK(coarse[output] < kOutputLimits[output]);
        CHECK(fine[output] < coarse[output] / 4);  // 3 bits more
        CHECK(fine[output] > 0);
      }
    }
  }
}

TEST_CASE("inside its range, a type and its unlimited counterpart give the same", "[tools]") {
  const ScanProblem p = make_problem(Regime::Random, -1, 16, Precision::Bf16);
  const Errors between = errors_of(emulated_outputs(p, 16, Precision::Bf16), emulated_outputs(p, 16, Precision::Bf16, ExponentRange::Unlimited));
  for (size_t output = 0; output < kOutputs; ++output) {
    INFO(kOutputNames[output] << ": " << between[output]);
    CHECK(between[output] < 2e-3);  // float sums, which turn some roundings
  }
}

TEST_CASE("verdicts of clear cases", "[tools]") {
  const std::vector<MakeProblem> problems = synthetic_problems();
  const auto verdict = [&](double bound, int64_t tile, Precision precision) {
    return scan({.bound = bound, .tile = tile, .precision = precision}, problems, emulated_run(), Effort::Verdict);
  };
  const ScanRow published = scan({.bound = -5, .tile = 16, .precision = Precision::Bf16}, problems, emulated_run());
  INFO(published.reason);
  CHECK(published.is_safe);  // the bound of the released models
  CHECK(published.range.log_reciprocal == Approx(75));
  CHECK(published.range.overflows == 0);
  CHECK_FALSE(verdict(-8, 16, Precision::Bf16).is_safe);
  CHECK_FALSE(verdict(-2, 64, Precision::Bf16).is_safe);
  CHECK_FALSE(verdict(-1, 16, Precision::Fp16).is_safe);
  CHECK(verdict(-0.1, 16, Precision::Fp16).is_safe);
  const ScanRow broken = verdict(-8, 16, Precision::Bf16);
  CHECK(broken.reason.find("overflow") != std::string::npos);
}

TEST_CASE("an output that is wrong makes a bound unsafe and is named; rounding alone does not", "[tools]") {
  const MakeProblem random = [](const Setting& s) { return make_problem(Regime::Random, s.bound, s.tile, s.precision); };
  const Run wrong = [](const ScanProblem& p, const Setting& s) {
    Outputs out = emulated_outputs(p, s.tile, s.precision);
    for (double& x : get(out, Output::DG)) {
      x *= 1.05;
    }
    return out;
  };
  const ScanRow row = scan({}, {random}, wrong);
  CHECK_FALSE(row.is_safe);
  CHECK(row.reason.find("dg is off by 5") == 0);
  const Run not_finite = [](const ScanProblem& p, const Setting& s) {
    Outputs out = emulated_outputs(p, s.tile, s.precision);
    get(out, Output::O).back() = NAN;
    return out;
  };
  CHECK(scan({}, {random}, not_finite).reason.find("o is not finite") == 0);
  CHECK(scan({}, {random}, emulated_run()).is_safe);
}

TEST_CASE("the first unsafe bound of fp16 is where operands overflow", "[tools]") {
  const MakeProblem one = [](const Setting& s) { return make_problem(Regime::OneChannel, s.bound, s.tile, s.precision); };
  const FirstUnsafe found = first_unsafe(16, Precision::Fp16, {one}, emulated_run());
  REQUIRE(found.row.has_value());
  CHECK(found.row->setting.bound == Approx(-0.74));
  CHECK(found.overflow_bound == Approx(-std::log(65520.0) / 15));
  // In bf16 safety ends a little before float's e^-87.34, because factors meet gradients below 1.
  const FirstUnsafe small = first_unsafe(4, Precision::Bf16, {one}, emulated_run());
  REQUIRE(small.row.has_value());
  CHECK(small.row->setting.bound <= -28);
  CHECK(small.row->setting.bound >= -29.13);
  CHECK(small.row->setting.bound > small.overflow_bound);
}

}  // namespace
}  // namespace longhaul::decay
