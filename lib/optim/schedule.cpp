// See schedule.h.
#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace longhaul {

double learning_rate_at(const OptimizerOptions& o, int64_t step, int64_t total_steps) {
  LH_CHECK(step >= 1 && total_steps >= 1, "step {} of {}", step, total_steps);
  if (step < o.warmup_steps) {
    return o.learning_rate * static_cast<double>(step) / static_cast<double>(o.warmup_steps);
  }
  const double lowest = o.learning_rate * o.min_learning_rate_ratio;
  const auto progress = [&](double from) {  // 0 at step `from`, 1 at the last step
    const double span = static_cast<double>(total_steps) - from;
    return span <= 0 ? 1.0 : std::clamp((static_cast<double>(step) - from) / span, 0.0, 1.0);
  };
  switch (o.schedule) {
    case ScheduleKind::Constant: return o.learning_rate;
    case ScheduleKind::Cosine: {
      const double t = progress(static_cast<double>(std::max<int64_t>(o.warmup_steps, 1)));
      return lowest + (o.learning_rate - lowest) * 0.5 * (1.0 + std::cos(std::numbers::pi * t));
    }
    case ScheduleKind::Wsd: {
      const double t = progress(std::round(static_cast<double>(total_steps) * (1.0 - o.decay_fraction)));
      return o.learning_rate + (lowest - o.learning_rate) * t;
    }
  }
  return o.learning_rate;
}

}  // namespace longhaul
