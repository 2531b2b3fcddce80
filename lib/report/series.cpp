// See series.h.
#include "report/series.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace longhaul::report {
namespace {

// Appends the points of one bucket, [begin, end), that a line of this width can show.
void append_bucket(const std::vector<Point>& points, size_t begin, size_t end, std::vector<Point>& out) {
  if (end - begin <= 4) {
    out.insert(out.end(), points.begin() + static_cast<std::ptrdiff_t>(begin), points.begin() + static_cast<std::ptrdiff_t>(end));
    return;
  }
  std::vector<size_t> kept = {begin, end - 1};
  size_t smallest = end, largest = end;
  size_t gap = end;
  for (size_t i = begin; i < end; ++i) {
    if (!std::isfinite(points[i].y)) {
      gap = i;
      continue;
    }
    smallest = smallest == end || points[i].y < points[smallest].y ? i : smallest;
    largest = largest == end || points[i].y > points[largest].y ? i : largest;
  }
  for (const size_t i : {smallest, largest, gap}) {
    if (i != end) {
      kept.push_back(i);
    }
  }
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  for (const size_t i : kept) {
    out.push_back(points[i]);
  }
}

}  // namespace

std::vector<Point> thinned(const std::vector<Point>& points, int64_t buckets) {
  if (std::ssize(points) <= 4 * buckets) {
    return points;
  }
  const double first = points.front().x;
  const double width = (points.back().x - first) / static_cast<double>(buckets);
  std::vector<Point> out;
  size_t begin = 0;
  for (int64_t bucket = 1; bucket <= buckets; ++bucket) {
    const double edge = bucket == buckets ? std::numeric_limits<double>::infinity() : first + width * static_cast<double>(bucket);
    size_t end = begin;
    while (end < points.size() && points[end].x < edge) {
      ++end;
    }
    append_bucket(points, begin, end, out);
    begin = end;
  }
  return out;
}

std::vector<Point> moving_mean(const std::vector<Point>& points, int64_t window) {
  const auto count = std::ssize(points);
  // Sums of everything before an index, so that long series cost no more for long windows.
  std::vector<double> sums = {0};
  std::vector<int64_t> terms = {0};
  for (const Point& point : points) {
    const bool counts = std::isfinite(point.y);
    sums.push_back(sums.back() + (counts ? point.y : 0));
    terms.push_back(terms.back() + (counts ? 1 : 0));
  }
  std::vector<Point> out = points;
  for (int64_t i = 0; i < count; ++i) {
    const auto begin = static_cast<size_t>(std::max<int64_t>(0, i - (window - 1) / 2));
    const auto end = static_cast<size_t>(std::min<int64_t>(count, i + window / 2 + 1));
    Point& point = out[static_cast<size_t>(i)];
    if (std::isfinite(point.y)) {
      point.y = (sums[end] - sums[begin]) / static_cast<double>(terms[end] - terms[begin]);
    }
  }
  return out;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) {
    return *middle;
  }
  return 0.5 * (*middle + *std::max_element(values.begin(), middle));
}

}  // namespace longhaul::report
