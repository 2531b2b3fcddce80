// The mixture keeps to its weights at every moment.
#include "data/mixture.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

using namespace longhaul;

TEST_CASE("shares are met after every draw", "[data]") {
  const std::vector<double> weights{5.0, 3.0, 1.5, 0.5};
  const Mixture mixture(weights);
  std::vector<int64_t> drawn(4, 0);
  double worst = 0.0;
  for (int i = 1; i <= 5000; ++i) {
    drawn[static_cast<size_t>(mixture.choose(drawn, 128))] += 128;
    for (size_t s = 0; s < 4; ++s) {
      worst = std::max(worst, std::abs(static_cast<double>(drawn[s]) - weights[s] / 10.0 * 128.0 * i));
    }
  }
  CHECK(worst <= 128.0);  // one sequence
}

TEST_CASE("two equal sources alternate, beginning with the first", "[data]") {
  const Mixture mixture(std::vector<double>{0.1, 0.1});
  std::vector<int64_t> drawn(2, 0);
  for (int64_t i = 0; i < 10; ++i) {
    const int64_t source = mixture.choose(drawn, 8);
    CHECK(source == i % 2);
    drawn[static_cast<size_t>(source)] += 8;
  }
}

TEST_CASE("a source of weight 0 is not drawn, a tiny weight is", "[data]") {
  const Mixture mixture(std::vector<double>{1.0, 0.0, 1e-12});
  std::vector<int64_t> drawn(3, 0);
  CHECK(mixture.choose(drawn, 1) == 0);
  drawn = {int64_t{1} << 40, 0, 0};
  CHECK(mixture.choose(drawn, 1) == 2);
}

TEST_CASE("counts of a whole pretraining run do not overflow", "[data]") {
  const Mixture mixture(std::vector<double>{1.0, 3.0});
  const int64_t quarter = int64_t{1} << 58;
  CHECK(mixture.choose(std::vector<int64_t>{quarter, 3 * quarter - 10}, 1) == 1);
  CHECK(mixture.choose(std::vector<int64_t>{quarter - 10, 3 * quarter}, 1) == 0);
}

TEST_CASE("weights that make no mixture are refused", "[data]") {
  using Weights = std::vector<double>;
  CHECK_THROWS_AS(Mixture(Weights{}), RecipeError);
  CHECK_THROWS_AS(Mixture(Weights{0.0, 0.0}), RecipeError);
  CHECK_THROWS_AS(Mixture(Weights{1.0, -0.5}), RecipeError);
  CHECK_THROWS_AS(Mixture(Weights{std::numeric_limits<double>::quiet_NaN()}), RecipeError);
  CHECK_THROWS_AS(Mixture(Weights{std::numeric_limits<double>::infinity()}), RecipeError);
}
