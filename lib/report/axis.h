// The arithmetic of a chart's axes: ranges that end on round numbers, ticks, their labels, and the way from a value to a
// place. No drawing here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace longhaul::report {

enum class Scale : uint8_t { Linear, Log };

// Where a value axis begins.
enum class Baseline : uint8_t {
  Data,  // near the smallest value
  Zero,  // at zero, so that lengths compare; linear scale only
};

struct Axis {
  Scale scale = Scale::Linear;
  double low = 0, high = 1;   // low < high; positive when logarithmic
  std::vector<double> ticks;  // ascending, within [low, high]

  // 0 at low, 1 at high; beyond for values outside. NaN for a value that has no place (NaN, or <= 0 when logarithmic).
  [[nodiscard]] double position(double value) const;
};

// An axis over [low, high] widened to round numbers, with about `wanted` ticks. A range without extent is widened too.
[[nodiscard]] Axis value_axis(double low, double high, Scale scale, Baseline baseline, int wanted);
// An axis over exactly [first, last], with ticks at whole numbers: steps.
[[nodiscard]] Axis step_axis(int64_t first, int64_t last, int wanted);

// One label a tick, all in the same form: "0.5", "1.0"; "20k"; "5e-4".
[[nodiscard]] std::vector<std::string> tick_labels(const Axis& axis);

// Log where all values are positive and the largest is more than `ratio` times the median: a few large values must not
// press the rest flat. Values that are not finite do not count.
[[nodiscard]] Scale fitting_scale(std::span<const double> values, double ratio);

}  // namespace longhaul::report
