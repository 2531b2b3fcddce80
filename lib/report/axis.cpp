// See axis.h.
#include "report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace longhaul::report {
namespace {

// The smallest of 1, 2, 2.5, 5, 10 times a power of ten that is at least `rough`.
double round_up_to_nice(double rough) {
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) {
      return factor * power;
    }
  }
  return 10 * power;
}

// Multiples of `interval` in [low, high]; the factor forgives rounding at the ends.
std::vector<double> multiples(double low, double high, double interval) {
  std::vector<double> ticks;
  const auto first = static_cast<int64_t>(std::ceil(low / interval - 1e-6));
  const auto last = static_cast<int64_t>(std::floor(high / interval + 1e-6));
  for (int64_t i = first; i <= last; ++i) {
    ticks.push_back(static_cast<double>(i) * interval);
  }
  return ticks;
}

Axis linear_axis(double low, double high, Baseline baseline, int wanted) {
  if (baseline == Baseline::Zero) {
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
  }
  if (!(high > low)) {
    const double margin = low == 0 ? 1 : 0.1 * std::abs(low);
    high += margin;
    low -= baseline == Baseline::Zero && low >= 0 ? 0 : margin;
  }
  const double interval = round_up_to_nice((high - low) / wanted);
  Axis axis{.scale = Scale::Linear,
            .low = interval * std::floor(low / interval + 1e-6),
            .high = interval * std::ceil(high / interval - 1e-6),
            .ticks = {}};
  axis.ticks = multiples(axis.low, axis.high, interval);
  return axis;
}

// Ticks at 1, 2 and 5 where they are few, at powers of ten otherwise.
Axis log_axis(double low, double high, int wanted) {
  low = std::max(low, 1e-300);
  high = std::max(high, low);
  constexpr std::array<double, 3> kFactors = {1, 2, 5};
  const bool is_narrow = std::log10(high / low) < 2.5;
  std::vector<double> candidates;
  for (int exponent = static_cast<int>(std::floor(std::log10(low))) - 1; exponent <= static_cast<int>(std::ceil(std::log10(high))) + 1; ++exponent) {
    for (const double factor : kFactors) {
      if (factor == 1 || is_narrow) {
        candidates.push_back(factor * std::pow(10, exponent));
      }
    }
  }
  // The last candidate at or below the range, to the first at or above it.
  const auto begin = std::prev(std::upper_bound(candidates.begin(), candidates.end(), low * (1 + 1e-9)));
  auto end = std::lower_bound(candidates.begin(), candidates.end(), high * (1 - 1e-9));
  end = end - begin < 1 ? begin + 1 : end;
  Axis axis{.scale = Scale::Log, .low = *begin, .high = *end, .ticks = {}};
  const auto stride = std::max<std::ptrdiff_t>(1, (end - begin) / (2 * std::max(wanted, 1)));
  for (auto tick = begin; tick <= end; tick += std::min(stride, end - tick + 1)) {
    axis.ticks.push_back(*tick);
  }
  return axis;
}

std::string without_trailing_zeros(std::string number) {
  if (number.find('.') != std::string::npos) {
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') {
      number.pop_back();
    }
  }
  return number;
}

// "5e-4" rather than "5.00e-04".
std::string exponent_label(double value) {
  if (value == 0) {
    return "0";
  }
  const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9));
  return without_trailing_zeros(fmt::format("{:.2f}", value / std::pow(10, exponent))) + fmt::format("e{}", exponent);
}

struct Unit {
  double factor;
  const char* suffix;
};

// From ten thousand on in thousands, so that labels stay short.
Unit unit_of(double largest) {
  if (largest >= 1e12) {
    return {1e12, "T"};
  }
  if (largest >= 1e9) {
    return {1e9, "B"};
  }
  if (largest >= 1e6) {
    return {1e6, "M"};
  }
  return largest >= 1e4 ? Unit{1e3, "k"} : Unit{1, ""};
}

// Decimals that tell neighbouring ticks apart.
int decimals_for(double interval) {
  for (int decimals = 0; decimals < 6; ++decimals) {
    const double shifted = interval * std::pow(10, decimals);
    if (std::abs(shifted - std::round(shifted)) < 1e-6 * shifted) {
      return decimals;
    }
  }
  return 6;
}

}  // namespace

double Axis::position(double value) const {
  if (scale == Scale::Linear) {
    return (value - low) / (high - low);
  }
  return value > 0 ? std::log(value / low) / std::log(high / low) : std::nan("");
}

Axis value_axis(double low, double high, Scale scale, Baseline baseline, int wanted) {
  return scale == Scale::Log ? log_axis(low, high, wanted) : linear_axis(low, high, baseline, wanted);
}

Axis step_axis(int64_t first, int64_t last, int wanted) {
  Axis axis{.scale = Scale::Linear, .low = static_cast<double>(first), .high = static_cast<double>(std::max(last, first + 1)), .ticks = {}};
  double interval = std::max(1.0, round_up_to_nice((axis.high - axis.low) / wanted));
  if (interval != std::floor(interval)) {
    interval *= 2;  // 2.5
  }
  axis.ticks = multiples(axis.low, axis.high, interval);
  return axis;
}

std::vector<std::string> tick_labels(const Axis& axis) {
  std::vector<std::string> labels;
  double largest = 0;
  for (const double tick : axis.ticks) {
    largest = std::max(largest, std::abs(tick));
  }
  const bool is_log = axis.scale == Scale::Log;
  const Unit unit = unit_of(largest);
  const double interval = axis.ticks.size() > 1 ? axis.ticks[1] - axis.ticks[0] : 1;
  for (const double tick : axis.ticks) {
    if (largest < 2e-3) {
      labels.push_back(exponent_label(tick));
    } else if (is_log) {
      labels.push_back(std::abs(tick) < 1e-3 ? exponent_label(tick) : fmt::format("{:g}{}", tick / unit_of(tick).factor, unit_of(tick).suffix));
    } else {
      labels.push_back(fmt::format("{:.{}f}{}", tick / unit.factor, decimals_for(interval / unit.factor), tick == 0 ? "" : unit.suffix));
    }
  }
  return labels;
}

Scale fitting_scale(std::span<const double> values, double ratio) {
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite), [](double value) { return std::isfinite(value); });
  if (finite.empty() || *std::min_element(finite.begin(), finite.end()) <= 0) {
    return Scale::Linear;
  }
  const auto middle = finite.begin() + static_cast<std::ptrdiff_t>(finite.size() / 2);
  std::nth_element(finite.begin(), middle, finite.end());
  const double median = *middle;
  return *std::max_element(finite.begin(), finite.end()) > ratio * median ? Scale::Log : Scale::Linear;
}

}  // namespace longhaul::report
