// See schedule.h.
#include "parallel/schedule.h"

#include <algorithm>

#include "base/error.h"

namespace longhaul {

std::vector<Work> one_forward_one_backward(int64_t stage, int64_t stages, int64_t micro_batches) {
  LH_CHECK(0 <= stage && stage < stages && micro_batches >= 0, "stage {} of {}, {} micro-batches", stage, stages, micro_batches);
  std::vector<Work> schedule;
  const int64_t ahead = std::min(stages - 1 - stage, micro_batches);
  for (int64_t m = 0; m < ahead; ++m) {
    schedule.push_back({WorkKind::Forward, m});
  }
  for (int64_t m = 0; m < micro_batches; ++m) {
    if (ahead + m < micro_batches) {
      schedule.push_back({WorkKind::Forward, ahead + m});
    }
    schedule.push_back({WorkKind::Backward, m});
  }
  return schedule;
}

std::vector<Work> forward_only(int64_t micro_batches) {
  std::vector<Work> schedule;
  for (int64_t m = 0; m < micro_batches; ++m) {
    schedule.push_back({WorkKind::Forward, m});
  }
  return schedule;
}

int64_t max_in_flight(const std::vector<Work>& schedule) {
  int64_t in_flight = 0;
  int64_t most = 0;
  for (const Work& work : schedule) {
    in_flight += work.kind == WorkKind::Forward ? 1 : -1;
    most = std::max(most, in_flight);
  }
  return most;
}

}  // namespace longhaul
