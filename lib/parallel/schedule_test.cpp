// The 1F1B schedule: each micro-batch once forward, then once backward, in order; and no deadlock when ranks wait for
// their neighbours' results.
#include "parallel/schedule.h"

#include <catch2/catch_test_macros.hpp>
#include <set>

using namespace longhaul;

namespace {
constexpr WorkKind F = WorkKind::Forward;
constexpr WorkKind B = WorkKind::Backward;

// Lets every rank work as far as its inputs allow, until nothing moves. True when all finish.
bool completes(int64_t stages, int64_t micro_batches) {
  std::vector<std::vector<Work>> schedules;
  std::vector<size_t> at(static_cast<size_t>(stages), 0);
  for (int64_t s = 0; s < stages; ++s) {
    schedules.push_back(one_forward_one_backward(s, stages, micro_batches));
  }
  std::set<std::pair<int64_t, int64_t>> forward_done, backward_done;  // (stage, micro-batch)
  for (bool moved = true; moved;) {
    moved = false;
    for (int64_t s = 0; s < stages; ++s) {
      auto& next = at[static_cast<size_t>(s)];
      if (next == schedules[static_cast<size_t>(s)].size()) {
        continue;
      }
      const Work work = schedules[static_cast<size_t>(s)][next];
      const bool ready = work.kind == F ? s == 0 || forward_done.contains({s - 1, work.micro_batch})
                                        : forward_done.contains({s, work.micro_batch}) &&
                                              (s == stages - 1 || backward_done.contains({s + 1, work.micro_batch}));
      if (ready) {
        (work.kind == F ? forward_done : backward_done).insert({s, work.micro_batch});
        ++next;
        moved = true;
      }
    }
  }
  return std::ssize(backward_done) == stages * micro_batches;
}
}  // namespace

TEST_CASE("the schedule of the first and last of three stages", "[parallel]") {
  CHECK(one_forward_one_backward(0, 3, 4) == std::vector<Work>{{F, 0}, {F, 1}, {F, 2}, {B, 0}, {F, 3}, {B, 1}, {B, 2}, {B, 3}});
  CHECK(one_forward_one_backward(2, 3, 2) == std::vector<Work>{{F, 0}, {B, 0}, {F, 1}, {B, 1}});
  CHECK(max_in_flight(one_forward_one_backward(0, 3, 4)) == 3);
  CHECK(max_in_flight(one_forward_one_backward(2, 3, 4)) == 1);
}

TEST_CASE("any number of stages and micro-batches completes", "[parallel]") {
  for (int64_t stages = 1; stages <= 8; ++stages) {
    for (int64_t micro_batches = 0; micro_batches <= 12; ++micro_batches) {
      INFO(stages << " stages, " << micro_batches << " micro-batches");
      CHECK(completes(stages, micro_batches));
    }
  }
}
