// Axes: the ticks a person would choose, places of values, and labels.
#include "report/axis.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

namespace longhaul::report {
namespace {

using Labels = std::vector<std::string>;

TEST_CASE("a linear axis ends on round numbers around the values", "[report]") {
  const Axis axis = value_axis(1.63, 5.56, Scale::Linear, Baseline::Data, 5);
  CHECK(axis.low == 1);
  CHECK(axis.high == 6);
  CHECK(tick_labels(axis) == Labels{"1", "2", "3", "4", "5", "6"});
  CHECK(axis.position(1) == 0);
  CHECK(axis.position(3.5) == Catch::Approx(0.5));
  CHECK(axis.position(6) == 1);
}

TEST_CASE("an axis from zero holds zero, also below", "[report]") {
  CHECK(value_axis(9300, 9900, Scale::Linear, Baseline::Zero, 5).low == 0);
  CHECK(value_axis(-0.2, 0.4, Scale::Linear, Baseline::Zero, 5).low == Catch::Approx(-0.2));
}

TEST_CASE("a constant has an axis with an extent", "[report]") {
  for (const double value : {0.0, 3.0, -2.0, 1e-9, 1e12}) {
    for (const Baseline baseline : {Baseline::Data, Baseline::Zero}) {
      const Axis axis = value_axis(value, value, Scale::Linear, baseline, 5);
      CAPTURE(value, axis.low, axis.high);
      CHECK(axis.low < axis.high);
      CHECK(axis.position(value) >= 0);
      CHECK(axis.position(value) <= 1);
      CHECK(axis.ticks.size() >= 2);
    }
    if (value > 0) {
      const Axis axis = value_axis(value, value, Scale::Log, Baseline::Data, 5);
      CHECK(axis.low < axis.high);
      CHECK(axis.position(value) >= 0);
      CHECK(axis.position(value) <= 1);
    }
  }
}

TEST_CASE("a logarithmic axis has ticks at 1, 2, 5 while they are few, else at powers of ten", "[report]") {
  const Axis narrow = value_axis(0.24, 8.1, Scale::Log, Baseline::Data, 5);
  CHECK(tick_labels(narrow) == Labels{"0.2", "0.5", "1", "2", "5", "10"});
  CHECK(narrow.position(std::sqrt(0.2 * 10)) == Catch::Approx(0.5));
  CHECK(std::isnan(narrow.position(0)));
  CHECK(std::isnan(narrow.position(-1)));
  const Axis wide = value_axis(1, 3e6, Scale::Log, Baseline::Data, 5);
  CHECK(tick_labels(wide) == Labels{"1", "10", "100", "1000", "10k", "100k", "1M", "10M"});
}

TEST_CASE("steps have whole ticks", "[report]") {
  CHECK(tick_labels(step_axis(1, 5, 10)) == Labels{"1", "2", "3", "4", "5"});
  CHECK(tick_labels(step_axis(1, 25, 10)) == Labels{"5", "10", "15", "20", "25"});
  CHECK(tick_labels(step_axis(1, 10000, 5)) == Labels{"2k", "4k", "6k", "8k", "10k"});
  CHECK(step_axis(7, 7, 10).high == 8);  // one step
}

TEST_CASE("labels of small and large values are short", "[report]") {
  CHECK(tick_labels(value_axis(0, 3e-4, Scale::Linear, Baseline::Zero, 5)) == Labels{"0", "1e-4", "2e-4", "3e-4"});
  CHECK(tick_labels(value_axis(0, 4e-3, Scale::Linear, Baseline::Zero, 5)) == Labels{"0.000", "0.001", "0.002", "0.003", "0.004"});
  CHECK(tick_labels(value_axis(0, 11900, Scale::Linear, Baseline::Zero, 5)) == Labels{"0.0", "2.5k", "5.0k", "7.5k", "10.0k", "12.5k"});
}

TEST_CASE("a logarithmic scale is for a few large values among small ones", "[report]") {
  CHECK(fitting_scale(std::vector<double>{1, 1, 1, 1, 50}, 10) == Scale::Log);
  CHECK(fitting_scale(std::vector<double>{1, 1, 1, 1, 5}, 10) == Scale::Linear);
  CHECK(fitting_scale(std::vector<double>{0, 1, 1, 1, 50}, 10) == Scale::Linear);  // zero has no logarithm
  CHECK(fitting_scale(std::vector<double>{1, 1, 1, std::numeric_limits<double>::infinity()}, 10) == Scale::Linear);
  CHECK(fitting_scale(std::vector<double>{}, 10) == Scale::Linear);
}

}  // namespace
}  // namespace longhaul::report
