// Accuracy of the vectorisable functions against libm in double, and their behaviour at the ends of the range.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/math/activations.h"
#include "kernels/math/lane_sum.h"

using namespace longhaul;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// |got - exact| in units of the last place of the exact value as a float.
double ulps(float got, double exact) {
  const float rounded = static_cast<float>(exact);
  const double unit = static_cast<double>(std::nextafter(std::abs(rounded), kInfinity)) - static_cast<double>(std::abs(rounded));
  return std::abs(static_cast<double>(got) - exact) / unit;
}

// The worst error of `fn` against `exact` over a fine grid of [begin, end].
template <class Fn, class Exact>
double worst_ulps(float begin, float end, Fn fn, Exact exact) {
  double worst = 0;
  constexpr int kPoints = 400001;
  for (int i = 0; i < kPoints; ++i) {
    const float x = begin + (end - begin) * (static_cast<float>(i) / (kPoints - 1));
    worst = std::max(worst, ulps(fn(x), exact(static_cast<double>(x))));
  }
  return worst;
}

}  // namespace

TEST_CASE("float exp is within 1.5 units in the last place", "[math]") {
  const auto fn = [](float x) { return math::exp(x); };
  const auto exact = [](double x) { return std::exp(x); };
  CHECK(worst_ulps(-87.3f, 88.7f, fn, exact) < 1.5);
  CHECK(worst_ulps(-1.0f, 1.0f, fn, exact) < 1.5);
  CHECK(worst_ulps(-103.0f, -87.3f, fn, exact) < 1.5);  // denormal results
  CHECK(math::exp(0.0f) == 1.0f);
}

TEST_CASE("float exp at the ends of its range", "[math]") {
  CHECK(math::exp(88.72284f) == kInfinity);
  CHECK(math::exp(1000.0f) == kInfinity);
  CHECK(math::exp(kInfinity) == kInfinity);
  CHECK(math::exp(-104.0f) == 0.0f);
  CHECK(math::exp(-1e30f) == 0.0f);
  CHECK(math::exp(-kInfinity) == 0.0f);
  CHECK(std::isnan(math::exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("float tanh and sigmoid are within 2 and 2.5 units in the last place", "[math]") {
  const auto tanh_float = [](float x) { return math::tanh(x); };
  const auto tanh_exact = [](double x) { return std::tanh(x); };
  CHECK(worst_ulps(-10.0f, 10.0f, tanh_float, tanh_exact) < 2);
  CHECK(worst_ulps(-0.7f, 0.7f, tanh_float, tanh_exact) < 2);
  const auto sigmoid_float = [](float x) { return math::sigmoid(x); };
  const auto sigmoid_exact = [](double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); };
  CHECK(worst_ulps(-80.0f, 80.0f, sigmoid_float, sigmoid_exact) < 2.5);
  CHECK(worst_ulps(-4.0f, 4.0f, sigmoid_float, sigmoid_exact) < 2.5);
}

TEST_CASE("tanh and sigmoid saturate and keep NaN", "[math]") {
  CHECK(math::tanh(1e30f) == 1.0f);
  CHECK(math::tanh(-kInfinity) == -1.0f);
  CHECK(math::tanh(0.0f) == 0.0f);
  CHECK(math::sigmoid(kInfinity) == 1.0f);
  CHECK(math::sigmoid(-kInfinity) == 0.0f);
  CHECK(math::sigmoid(0.0f) == 0.5f);
  CHECK(math::sigmoid(-800.0) == 0.0);
  CHECK(math::sigmoid(800.0) == 1.0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(math::tanh(nan)));
  CHECK(std::isnan(math::sigmoid(nan)));
}

TEST_CASE("derivatives agree with finite differences and survive saturation", "[math]") {
  const double h = 1e-6;
  for (const double x : {-30.0, -3.0, -0.1, 0.0, 0.7, 4.0, 30.0}) {
    const auto s = math::sigmoid_and_derivative(x);
    CHECK(s.value == Catch::Approx(math::sigmoid(x)).epsilon(1e-15));
    CHECK_THAT(s.derivative, Catch::Matchers::WithinAbs((math::sigmoid(x + h) - math::sigmoid(x - h)) / (2 * h), 1e-9));
    const auto silu = math::silu_and_derivative(x);
    CHECK(silu.value == Catch::Approx(math::silu(x)).epsilon(1e-15));
    CHECK_THAT(silu.derivative, Catch::Matchers::WithinAbs((math::silu(x + h) - math::silu(x - h)) / (2 * h), 1e-8));
  }
  // 1 - sigmoid(30) is zero in float, the derivative is not.
  CHECK_THAT(math::sigmoid_and_derivative(30.0f).derivative, Catch::Matchers::WithinRel(9.3576e-14f, 1e-4f));
}

TEST_CASE("softplus in both tails", "[math]") {
  CHECK_THAT(math::softplus(0.0), Catch::Matchers::WithinRel(0.693147180559945, 1e-14));
  CHECK_THAT(math::softplus(1.0), Catch::Matchers::WithinRel(1.313261687518223, 1e-14));
  CHECK(math::softplus(800.0) == 800.0);
  CHECK_THAT(math::softplus(-30.0), Catch::Matchers::WithinRel(9.357622968839299e-14, 1e-12));
}

TEST_CASE("lane_sum adds every term once at any length", "[math]") {
  for (int64_t n = 0; n < 40; ++n) {
    CHECK(math::lane_sum(n, [](int64_t i) { return static_cast<float>(i + 1); }) == static_cast<double>(n * (n + 1) / 2));
  }
  // Adding 1 to 2^24 eight thousand times is lost in float and kept in double.
  CHECK(math::lane_sum(8001, [](int64_t i) { return i == 0 ? 16777216.0f : 1.0f; }) == 16785216.0);
}
