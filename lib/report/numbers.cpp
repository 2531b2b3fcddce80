// See numbers.h.
#include "report/numbers.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace longhaul::report {
namespace {

constexpr const char* kNotAvailable = "n/a";

// Four significant digits of a number from 1 to 1000.
int decimals_of(double magnitude) { return magnitude >= 100 ? 1 : magnitude >= 10 ? 2 : 3; }

}  // namespace

std::string with_separators(double value) {
  if (!std::isfinite(value)) {
    return kNotAvailable;
  }
  std::string digits = fmt::format("{:.0f}", std::abs(value));
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return (value < 0 ? "-" : "") + digits;
}

std::string short_count(double value) {
  if (!std::isfinite(value)) {
    return kNotAvailable;
  }
  if (std::abs(value) < 999'999.5) {
    return with_separators(value);
  }
  constexpr std::array<const char*, 3> kUnits = {"M", "B", "T"};
  value /= 1e6;
  size_t unit = 0;
  // What would be printed as 1000.0 of a unit is one of the next.
  for (; std::abs(value) >= 999.95 && unit + 1 < kUnits.size(); ++unit) {
    value /= 1e3;
  }
  return fmt::format("{:.{}f}{}", value, decimals_of(std::abs(value)), kUnits[unit]);
}

std::string byte_size(double bytes) {
  if (!std::isfinite(bytes)) {
    return kNotAvailable;
  }
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) {
    bytes /= 1024;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) {
    return kNotAvailable;
  }
  if (seconds < 1) {
    return fmt::format("{:.0f} ms", seconds * 1e3);
  }
  if (seconds < 59.95) {
    return fmt::format("{:.1f} s", seconds);
  }
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) {
    return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  }
  return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
}

std::string fixed(double value, int decimals) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : std::string(kNotAvailable);
}

}  // namespace longhaul::report
