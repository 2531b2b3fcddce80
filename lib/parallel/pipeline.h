// Runs a stage's part of one optimizer step: every micro-batch forward and backward in the order of a schedule, with the
// transfers to the neighbouring stages. Each micro-batch in flight has a slot with an arena of its own for what backward
// reads; the slot is reused when its micro-batch is done.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "comm/group.h"
#include "model/parameters.h"
#include "model/stage_model.h"
#include "parallel/schedule.h"

namespace longhaul {

class Pipeline {
 public:
  // All references must outlive the pipeline. `slots` is at least max_in_flight of every schedule that will be run.
  Pipeline(const StageModel& model, const Parameters& parameters, const Group& pipeline_group, Device device, int64_t slots,
           int64_t keep_bytes_per_slot);

  struct Step {
    std::vector<Work> schedule;
    std::span<const MicroBatch> micro_batches;
    std::span<const RouterState> routers;  // one a decoder layer of the stage
    StageModel::Loss loss;
    StageModel::Purpose purpose = StageModel::Purpose::Train;
  };
  void run(ExecContext& ctx, const Step& step);

  // Called after each forward, for programs that look inside (routes, logits). `saved` is valid during the call.
  std::function<void(int64_t micro_batch, const StageModel::Saved& saved)> after_forward;

  [[nodiscard]] int64_t keep_high_water_bytes() const;
  [[nodiscard]] int64_t keep_capacity_bytes() const;

 private:
  struct Slot {
    Arena keep;
    StageModel::Saved saved;
    std::vector<PendingTransfer> sends;  // of memory in `keep`
  };
  void forward(ExecContext& ctx, const Step& step, int64_t micro_batch);
  void backward(ExecContext& ctx, int64_t micro_batch);
  void free_slot(Slot& slot);
  [[nodiscard]] Slot& slot_of(int64_t micro_batch) { return slots_[static_cast<size_t>(micro_batch) % slots_.size()]; }

  const StageModel& model_;
  const Parameters& parameters_;
  const Group& group_;
  std::vector<Slot> slots_;
};

struct StageMemory {
  int64_t keep_bytes = 0;     // activations of one micro-batch in flight
  int64_t scratch_bytes = 0;  // temporary memory
  std::vector<Arena::Entry> keep_entries;  // largest activations by name
};
// What one micro-batch of `tokens` tokens in `documents` documents needs: the step itself, run without arithmetic.
[[nodiscard]] StageMemory plan_stage_memory(const StageModel& model, Device device, int64_t tokens, int64_t documents);

}  // namespace longhaul
