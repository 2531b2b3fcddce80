// Preparing long series for drawing: fewer points with the same picture, and a moving mean.
#pragma once

#include <cstdint>
#include <vector>

namespace longhaul::report {

struct Point {
  double x = 0;
  double y = 0;  // NaN: missing, a gap in the line
};

// At most about 4 * buckets points that draw the same line: of every bucket of x the first, the smallest, the largest and
// the last point stay, so that no spike is lost. Gaps stay. Points are ascending in x; few points are returned as they are.
[[nodiscard]] std::vector<Point> thinned(const std::vector<Point>& points, int64_t buckets);

// The mean of `window` points around each (fewer at the ends). Missing points are left out of means and stay missing.
[[nodiscard]] std::vector<Point> moving_mean(const std::vector<Point>& points, int64_t window);

// The median of the finite values; NaN when there are none.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace longhaul::report
