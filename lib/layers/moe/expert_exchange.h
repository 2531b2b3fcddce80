// Carries token rows to the ranks that own their experts and back. Rows leave sorted by expert; they arrive sorted by
// source rank and are put into expert order, so that each local expert sees one contiguous range of rows:
//
//   home:   [expert 0 | expert 1 | ... | expert E-1]                    rows of this rank's tokens
//   local:  [expert e0: source 0, source 1, ... | expert e0+1: ...]     rows of this rank's experts, from all sources
//
// Token counts are uneven and may be zero; every rank of the group takes part in every exchange. With one rank home and
// local rows are the same: nothing is moved, and the host need not know the counts. With several, the host reads the
// counts once a forward pass, because a transfer's size is an argument of its call; backward uses the same plan.
#pragma once

#include <vector>

#include "comm/group.h"
#include "device/exec_context.h"
#include "tensor/tensor_view.h"

namespace longhaul {

class ExpertExchange {
 public:
  struct Plan {
    int64_t home_rows = 0;
    int64_t local_rows = 0;
    std::vector<int64_t> home_counts;   // [ranks], rows sent to each rank
    std::vector<int64_t> local_counts;  // [ranks], rows received from each rank
    TensorView local_offsets;           // i64 [local experts + 1], rows of each local expert
    TensorView row_of_arrival;          // i64 [local_rows], place in expert order of each row as it arrives; several ranks only
  };

  explicit ExpertExchange(const Group& expert_group) : group_(expert_group) {}

  // `offsets` i64 [experts + 1] are the rows of each expert among this rank's home rows. What the plan keeps is taken
  // from `keep`. In planning mode, when counts are unknown, local_rows is home_rows on one rank and 2 * home_rows on
  // several: the memory that is set aside, beyond which arenas grow.
  [[nodiscard]] Plan plan(ExecContext& ctx, Arena& keep, TensorView offsets, int64_t home_rows) const;
  // True when home and local rows may be one tensor.
  [[nodiscard]] bool is_local() const noexcept { return group_.size == 1; }
  // home [home_rows, width] -> local [local_rows, width]
  void to_experts(ExecContext& ctx, const Plan& plan, TensorView home, TensorView local) const;
  // local [local_rows, width] -> home [home_rows, width]
  void to_home(ExecContext& ctx, const Plan& plan, TensorView local, TensorView home) const;

 private:
  const Group& group_;
};

}  // namespace longhaul
