// See parallel_grid.h.
#include "comm/parallel_grid.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/cast.h"

namespace longhaul {

namespace {

// Values of one degree that would make the product of the three equal to the world.
std::vector<std::string> single_changes(const ParallelOptions& o, int64_t world) {
  std::vector<std::string> changes;
  const auto propose = [&](std::string_view key, int64_t now, int64_t others) {
    if (world % others == 0 && world / others != now) {
      changes.push_back(fmt::format("parallel.{}={}", key, world / others));
    }
  };
  propose("data", o.data, o.pipeline * o.context);
  propose("context", o.context, o.pipeline * o.data);
  propose("pipeline", o.pipeline, o.data * o.context);
  return changes;
}

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) {
      found.push_back(d);
    }
  }
  return found;
}

void expect_degrees(const ParallelOptions& o, int64_t world) {
  // A bound far above any cluster keeps the products below from overflowing.
  constexpr int64_t kMaxDegree = 1 << 20;
  const std::array<std::pair<std::string_view, int64_t>, 5> degrees = {{{"pipeline", o.pipeline},
                                                                        {"virtual_pipeline", o.virtual_pipeline},
                                                                        {"data", o.data},
                                                                        {"context", o.context},
                                                                        {"expert", o.expert}}};
  for (const auto& [key, value] : degrees) {
    if (value < 1 || value > kMaxDegree) {
      throw RecipeError("parallel.{}: must be between 1 and {}, got {}", key, kMaxDegree, value);
    }
  }
  if (world < 1) {
    throw RecipeError("the world must have at least 1 rank, got {}", world);
  }
}

}  // namespace

std::string_view to_string(GroupKind kind) noexcept {
  switch (kind) {
    case GroupKind::World: return "world";
    case GroupKind::Pipeline: return "pipeline";
    case GroupKind::Data: return "data";
    case GroupKind::Context: return "context";
    case GroupKind::Loss: return "loss";
    case GroupKind::Expert: return "expert";
    case GroupKind::ExpertData: return "expert_data";
    case GroupKind::Model: return "model";
  }
  return "?";
}

ParallelGrid ParallelGrid::create(const ParallelOptions& o, int world_size) {
  expect_degrees(o, world_size);
  const int64_t block = o.data * o.context;
  const int64_t product = o.pipeline * block;
  if (product != world_size) {
    const std::vector<std::string> changes = single_changes(o, world_size);
    throw RecipeError(
        "parallel: pipeline {} x data {} x context {} = {} ranks (expert {}), but the world has {}; start {} ranks "
        "(mpirun -n {}){}{}",
        o.pipeline, o.data, o.context, product, o.expert, world_size, product, product,
        changes.empty() ? "" : ", or set one of: ", fmt::join(changes, ", "));
  }
  if (block % o.expert != 0) {
    throw RecipeError(
        "parallel.expert: must divide data {} x context {} = {}, got {} (pipeline {}, world {}); set it to one of: {}", o.data,
        o.context, block, o.expert, o.pipeline, world_size, fmt::join(divisors(block), ", "));
  }
  ParallelGrid grid;
  grid.options_ = o;
  grid.pipeline_ = narrow<int>(o.pipeline);
  grid.data_ = narrow<int>(o.data);
  grid.context_ = narrow<int>(o.context);
  grid.expert_ = narrow<int>(o.expert);
  return grid;
}

void ParallelGrid::expect_rank(int world_rank) const {
  if (world_rank < 0 || world_rank >= world_size()) {
    throw UsageError("there is no rank {} in a grid of {} ranks", world_rank, world_size());
  }
}

GridCoordinates ParallelGrid::coordinates(int world_rank) const {
  expect_rank(world_rank);
  const int in_stage = world_rank % stage_size();
  return {.pipeline = world_rank / stage_size(),
          .data = in_stage / context_,
          .context = in_stage % context_,
          .expert_data = in_stage / expert_,
          .expert = in_stage % expert_};
}

int ParallelGrid::world_rank(const GridCoordinates& at) const { return (at.pipeline * data_ + at.data) * context_ + at.context; }

int ParallelGrid::group_size(GroupKind kind) const noexcept {
  switch (kind) {
    case GroupKind::World: return world_size();
    case GroupKind::Pipeline: return pipeline_;
    case GroupKind::Data: return data_;
    case GroupKind::Context: return context_;
    case GroupKind::Loss: return stage_size();
    case GroupKind::Expert: return expert_;
    case GroupKind::ExpertData: return expert_data();
    case GroupKind::Model: return pipeline_ * expert_;
  }
  return 0;
}

int ParallelGrid::group_index(GroupKind kind, int rank) const {
  const GridCoordinates at = coordinates(rank);
  switch (kind) {
    case GroupKind::World: return 0;
    case GroupKind::Pipeline: return rank % stage_size();
    case GroupKind::Data: return at.pipeline * context_ + at.context;
    case GroupKind::Context: return at.pipeline * data_ + at.data;
    case GroupKind::Loss: return at.pipeline;
    case GroupKind::Expert: return at.pipeline * expert_data() + at.expert_data;
    case GroupKind::ExpertData: return at.pipeline * expert_ + at.expert;
    case GroupKind::Model: return at.expert_data;
  }
  return 0;
}

int ParallelGrid::group_rank(GroupKind kind, int rank) const {
  const GridCoordinates at = coordinates(rank);
  switch (kind) {
    case GroupKind::World: return rank;
    case GroupKind::Pipeline: return at.pipeline;
    case GroupKind::Data: return at.data;
    case GroupKind::Context: return at.context;
    case GroupKind::Loss: return rank % stage_size();
    case GroupKind::Expert: return at.expert;
    case GroupKind::ExpertData: return at.expert_data;
    case GroupKind::Model: return at.pipeline * expert_ + at.expert;
  }
  return 0;
}

std::vector<int> ParallelGrid::group_ranks(GroupKind kind, int rank) const {
  // Every group is one or two nested strides through the world, starting where the group's own coordinates are zero.
  const GridCoordinates at = coordinates(rank);
  const auto walk = [&](int first, int count, int stride) {
    std::vector<int> ranks(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      ranks[static_cast<size_t>(i)] = first + i * stride;
    }
    return ranks;
  };
  const int stage_first = at.pipeline * stage_size();
  switch (kind) {
    case GroupKind::World: return walk(0, world_size(), 1);
    case GroupKind::Pipeline: return walk(rank % stage_size(), pipeline_, stage_size());
    case GroupKind::Data: return walk(stage_first + at.context, data_, context_);
    case GroupKind::Context: return walk(stage_first + at.data * context_, context_, 1);
    case GroupKind::Loss: return walk(stage_first, stage_size(), 1);
    case GroupKind::Expert: return walk(stage_first + at.expert_data * expert_, expert_, 1);
    case GroupKind::ExpertData: return walk(stage_first + at.expert, expert_data(), expert_);
    case GroupKind::Model: break;
  }
  std::vector<int> ranks;
  for (int stage = 0; stage < pipeline_; ++stage) {
    const std::vector<int> part = walk(stage * stage_size() + at.expert_data * expert_, expert_, 1);
    ranks.insert(ranks.end(), part.begin(), part.end());
  }
  return ranks;
}

std::string ParallelGrid::describe() const {
  return fmt::format("pipeline {} x data {} x context {} = {} ranks; expert {}, expert_data {}", pipeline_, data_, context_,
                     world_size(), expert_, expert_data());
}

}  // namespace longhaul
