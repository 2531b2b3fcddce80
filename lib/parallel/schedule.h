// The order in which a pipeline rank works, as data: a list of forward and backward passes of micro-batches.
#pragma once

#include <cstdint>
#include <vector>

namespace longhaul {

enum class WorkKind : uint8_t { Forward, Backward };

struct Work {
  WorkKind kind = WorkKind::Forward;
  int64_t micro_batch = 0;

  friend bool operator==(const Work&, const Work&) = default;
};

// One forward, one backward (Narayanan et al., arXiv:2006.09503, non-interleaved): `stage` of `stages` runs
// min(stages - 1 - stage, micro_batches) forwards ahead, then alternates. Valid for any number of micro-batches; with
// fewer than stages the bubble is longer. The ideal bubble is (stages - 1) / micro_batches of the useful time.
[[nodiscard]] std::vector<Work> one_forward_one_backward(int64_t stage, int64_t stages, int64_t micro_batches);
// Forward passes only, for validation.
[[nodiscard]] std::vector<Work> forward_only(int64_t micro_batches);

// Most micro-batches that are between their forward and their backward at any time of the schedule.
[[nodiscard]] int64_t max_in_flight(const std::vector<Work>& schedule);

}  // namespace longhaul
