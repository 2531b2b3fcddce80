// Thinning keeps what a reader would miss; means and medians leave missing values out.
#include "report/series.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

namespace longhaul::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<Point> wave(int64_t count) {
  std::vector<Point> points;
  for (int64_t i = 0; i < count; ++i) {
    points.push_back({.x = static_cast<double>(i + 1), .y = std::sin(0.37 * static_cast<double>(i))});
  }
  return points;
}

bool contains(const std::vector<Point>& points, double x) {
  return std::any_of(points.begin(), points.end(), [x](const Point& point) { return point.x == x; });
}

TEST_CASE("thinning keeps the ends and every spike", "[report]") {
  std::vector<Point> points = wave(10000);
  points[4321].y = 50;
  points[7654].y = -50;
  const std::vector<Point> thin = thinned(points, 100);
  CHECK(thin.size() <= 400);
  CHECK(thin.size() >= 100);
  CHECK(contains(thin, 1));
  CHECK(contains(thin, 10000));
  CHECK(contains(thin, 4322));
  CHECK(contains(thin, 7655));
  CHECK(std::is_sorted(thin.begin(), thin.end(), [](const Point& a, const Point& b) { return a.x < b.x; }));
}

TEST_CASE("thinning keeps gaps", "[report]") {
  std::vector<Point> points = wave(10000);
  points[5000].y = kNan;
  CHECK(contains(thinned(points, 100), 5001));
  for (Point& point : points) {
    point.y = kNan;
  }
  for (const Point& point : thinned(points, 100)) {
    CHECK(std::isnan(point.y));
  }
}

TEST_CASE("few points stay as they are", "[report]") {
  CHECK(thinned(wave(5), 100).size() == 5);
  CHECK(thinned({}, 100).empty());
}

TEST_CASE("the moving mean takes the points around each", "[report]") {
  const std::vector<Point> mean = moving_mean({{1, 1}, {2, 2}, {3, 6}, {4, kNan}, {5, 10}}, 3);
  CHECK(mean[0].y == 1.5);
  CHECK(mean[1].y == 3);
  CHECK(mean[2].y == 4);
  CHECK(std::isnan(mean[3].y));
  CHECK(mean[4].y == 10);
  CHECK(mean[4].x == 5);
}

TEST_CASE("the median does not count missing values", "[report]") {
  CHECK(median({3, kNan, 1, 2}) == 2);
  CHECK(median({4, 1, 3, 2}) == 2.5);
  CHECK(std::isnan(median({kNan})));
  CHECK(std::isnan(median({})));
}

}  // namespace
}  // namespace longhaul::report
