// Which rank does what: pure arithmetic on (ParallelOptions, world size), no communication, so every layout can be
// checked in a unit test and planned for without devices.
//
//   world = pipeline x data x context, outer to inner:      world rank = (pipeline * D + data) * C + context
//   Each pipeline stage is a block of D x C neighbouring ranks. Experts re-cut that block as (expert_data, expert),
//   expert innermost, whatever D and C are:                 rank in the block = expert_data * E + expert
//
// Worked example: 16 ranks, pipeline 2, data 4, context 2, expert 4 (so expert_data = 4 * 2 / 4 = 2):
//
//   world rank    0  1  2  3  4  5  6  7 |  8  9 10 11 12 13 14 15
//   pipeline      0  0  0  0  0  0  0  0 |  1  1  1  1  1  1  1  1
//   data          0  0  1  1  2  2  3  3 |  0  0  1  1  2  2  3  3
//   context       0  1  0  1  0  1  0  1 |  0  1  0  1  0  1  0  1
//   expert_data   0  0  0  0  1  1  1  1 |  0  0  0  0  1  1  1  1
//   expert        0  1  2  3  0  1  2  3 |  0  1  2  3  0  1  2  3
//
//   groups of     ranks which differ in           of rank 5          number of groups
//   world         everything                      0 … 15             1
//   pipeline      pipeline                        5 13               8
//   data          data                            1 3 5 7            4
//   context       context                         4 5                8
//   loss          data, context                   0 … 7              2    one stage: shares all tokens of a step
//   expert        expert                          4 5 6 7            4    holds each expert of a stage once
//   expert_data   expert_data                     1 5                8    holds the same experts
//   model         pipeline, expert                4 5 6 7 12 … 15    2    holds each parameter of the model once
//
// Gradients of ordinary parameters are summed over `loss`, those of experts over `expert_data`. Within every group ranks
// are ordered by world rank.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/parallel_options.h"

namespace longhaul {

enum class GroupKind : uint8_t { World, Pipeline, Data, Context, Loss, Expert, ExpertData, Model };
inline constexpr std::array kGroupKinds = {GroupKind::World, GroupKind::Pipeline, GroupKind::Data,       GroupKind::Context,
                                           GroupKind::Loss,  GroupKind::Expert,   GroupKind::ExpertData, GroupKind::Model};

[[nodiscard]] std::string_view to_string(GroupKind kind) noexcept;

// Where a world rank stands on each axis of the grid.
struct GridCoordinates {
  int pipeline = 0;
  int data = 0;
  int context = 0;
  int expert_data = 0;
  int expert = 0;

  friend bool operator==(const GridCoordinates&, const GridCoordinates&) = default;
};

class ParallelGrid {
 public:
  // Throws RecipeError, with all numbers and possible remedies, when the degrees do not fill the world or the experts do
  // not fit the block. virtual_pipeline is kept for the schedule; it does not change which rank is where.
  [[nodiscard]] static ParallelGrid create(const ParallelOptions& options, int world_size);

  [[nodiscard]] const ParallelOptions& options() const noexcept { return options_; }
  [[nodiscard]] int world_size() const noexcept { return pipeline() * stage_size(); }
  [[nodiscard]] int pipeline() const noexcept { return pipeline_; }
  [[nodiscard]] int data() const noexcept { return data_; }
  [[nodiscard]] int context() const noexcept { return context_; }
  [[nodiscard]] int expert() const noexcept { return expert_; }
  [[nodiscard]] int expert_data() const noexcept { return stage_size() / expert_; }
  // Ranks of one pipeline stage: data x context.
  [[nodiscard]] int stage_size() const noexcept { return data_ * context_; }

  [[nodiscard]] GridCoordinates coordinates(int world_rank) const;
  // The inverse; expert coordinates follow from the others and are not read.
  [[nodiscard]] int world_rank(const GridCoordinates& at) const;

  [[nodiscard]] int group_size(GroupKind kind) const noexcept;
  // Groups of a kind are numbered from 0; equal for the ranks of one group. The color of the communicator split.
  [[nodiscard]] int group_index(GroupKind kind, int world_rank) const;
  // The place of a rank in its group.
  [[nodiscard]] int group_rank(GroupKind kind, int world_rank) const;
  // World ranks of the group that holds `world_rank`, in group order.
  [[nodiscard]] std::vector<int> group_ranks(GroupKind kind, int world_rank) const;

  // "pipeline 2 x data 4 x context 2 = 16 ranks; expert 4, expert_data 2"
  [[nodiscard]] std::string describe() const;

 private:
  ParallelGrid() = default;
  void expect_rank(int world_rank) const;

  ParallelOptions options_;
  int pipeline_ = 1;
  int data_ = 1;
  int context_ = 1;
  int expert_ = 1;
};

}  // namespace longhaul
