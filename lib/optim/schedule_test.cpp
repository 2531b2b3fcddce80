// Learning rates at the corners of each schedule, and clipping.
#include "optim/schedule.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "optim/optimizer.h"

using namespace longhaul;
using Catch::Approx;

TEST_CASE("warm-up is linear and every schedule starts at the peak", "[optim]") {
  for (const ScheduleKind kind : {ScheduleKind::Constant, ScheduleKind::Cosine, ScheduleKind::Wsd}) {
    const OptimizerOptions o{.learning_rate = 2e-3, .schedule = kind, .warmup_steps = 10};
    CHECK(learning_rate_at(o, 1, 100) == Approx(2e-4).epsilon(1e-14));
    CHECK(learning_rate_at(o, 5, 100) == Approx(1e-3).epsilon(1e-14));
    CHECK(learning_rate_at(o, 10, 100) == Approx(2e-3).epsilon(1e-14));
  }
}

TEST_CASE("cosine falls to the minimum at the last step", "[optim]") {
  const OptimizerOptions o{.learning_rate = 1.0, .schedule = ScheduleKind::Cosine, .warmup_steps = 20, .min_learning_rate_ratio = 0.1};
  CHECK(learning_rate_at(o, 60, 100) == Approx(0.55).epsilon(1e-12));  // half way
  CHECK(learning_rate_at(o, 40, 100) == Approx(0.1 + 0.45 * (1 + std::sqrt(0.5))).epsilon(1e-12));  // a quarter
  CHECK(learning_rate_at(o, 100, 100) == Approx(0.1).epsilon(1e-12));
  CHECK(learning_rate_at(o, 150, 100) == Approx(0.1).epsilon(1e-12));  // beyond the run it stays
}

TEST_CASE("wsd holds the peak and then falls linearly", "[optim]") {
  const OptimizerOptions o{.learning_rate = 1.0, .schedule = ScheduleKind::Wsd, .min_learning_rate_ratio = 0.0, .decay_fraction = 0.25};
  CHECK(learning_rate_at(o, 75, 100) == 1.0);
  CHECK(learning_rate_at(o, 80, 100) == Approx(0.8).epsilon(1e-12));
  CHECK(learning_rate_at(o, 100, 100) == Approx(0.0).margin(1e-15));
}

TEST_CASE("a run shorter than its warm-up only warms up", "[optim]") {
  const OptimizerOptions o{.learning_rate = 1.0, .schedule = ScheduleKind::Cosine, .warmup_steps = 50};
  CHECK(learning_rate_at(o, 20, 20) == Approx(0.4).epsilon(1e-14));
}

TEST_CASE("clipping scales only norms above the limit", "[optim]") {
  CHECK(clip_factor(4.0, 1.0) == 0.25);
  CHECK(clip_factor(0.5, 1.0) == 1.0);
  CHECK(clip_factor(4.0, 0.0) == 1.0);
}
