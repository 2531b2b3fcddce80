// Thousands of layouts: groups partition the world, have the right sizes, and hold the right ranks; messages of mistakes.
#include "comm/parallel_grid.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <set>

#include "base/error.h"

using namespace longhaul;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

ParallelGrid grid_of(int pipeline, int data, int context, int expert) {
  return ParallelGrid::create({.pipeline = pipeline, .data = data, .context = context, .expert = expert}, pipeline * data * context);
}

// Calls fn for every layout with small degrees.
template <class Fn>
int64_t for_each_layout(Fn&& fn) {
  int64_t layouts = 0;
  for (int pipeline = 1; pipeline <= 9; ++pipeline) {
    for (int data = 1; data <= 10; ++data) {
      for (int context = 1; context <= 9; ++context) {
        for (int expert = 1; expert <= data * context; ++expert) {
          if ((data * context) % expert == 0) {
            fn(grid_of(pipeline, data, context, expert));
            ++layouts;
          }
        }
      }
    }
  }
  return layouts;
}

// May two ranks which are in one group of this kind differ on this axis?
struct FreeAxes {
  bool pipeline, data, context;
};
FreeAxes free_axes(GroupKind kind) {
  switch (kind) {
    case GroupKind::World: return {true, true, true};
    case GroupKind::Pipeline: return {true, false, false};
    case GroupKind::Data: return {false, true, false};
    case GroupKind::Context: return {false, false, true};
    case GroupKind::Loss:
    case GroupKind::Expert:
    case GroupKind::ExpertData: return {false, true, true};
    case GroupKind::Model: return {true, true, true};
  }
  return {};
}

// One line for the first thing that is wrong with a layout, or nothing. Plain code: millions of Catch2 assertions are slow.
std::string first_fault(const ParallelGrid& grid) {
  const int world = grid.world_size();
  for (const GroupKind kind : kGroupKinds) {
    std::map<int, std::vector<int>> groups;
    for (int rank = 0; rank < world; ++rank) {
      groups[grid.group_index(kind, rank)].push_back(rank);
    }
    const auto fault = [&](std::string_view what, int rank) {
      return fmt::format("{}: {} group of rank {}: {}", grid.describe(), to_string(kind), rank, what);
    };
    if (static_cast<int>(groups.size()) * grid.group_size(kind) != world || groups.rbegin()->first != static_cast<int>(groups.size()) - 1) {
      return fault("numbers of groups and sizes do not cover the world", 0);
    }
    const FreeAxes free = free_axes(kind);
    for (const auto& [index, members] : groups) {
      const GridCoordinates first = grid.coordinates(members.front());
      for (size_t i = 0; i < members.size(); ++i) {
        const int rank = members[i];
        const GridCoordinates at = grid.coordinates(rank);
        if (grid.group_ranks(kind, rank) != members) {
          return fault("listed ranks are not those of its index, in order", rank);
        }
        if (grid.group_rank(kind, rank) != static_cast<int>(i)) {
          return fault("its place is not that in the list", rank);
        }
        if ((at.pipeline != first.pipeline && !free.pipeline) || (at.data != first.data && !free.data) ||
            (at.context != first.context && !free.context)) {
          return fault("differs on an axis that must be fixed", rank);
        }
        if (kind == GroupKind::Expert && (at.expert != static_cast<int>(i) || at.expert_data != first.expert_data)) {
          return fault("experts are not in order", rank);
        }
        if (kind == GroupKind::ExpertData && (at.expert != first.expert || at.expert_data != static_cast<int>(i))) {
          return fault("holds other experts", rank);
        }
        if (kind == GroupKind::Model && at.expert_data != first.expert_data) {
          return fault("mixes copies of the experts", rank);
        }
      }
    }
  }
  return {};
}

}  // namespace

TEST_CASE("groups of thousands of layouts partition the world", "[comm]") {
  std::string fault;
  const int64_t layouts = for_each_layout([&](const ParallelGrid& grid) {
    if (fault.empty()) {
      fault = first_fault(grid);
    }
  });
  INFO(fault);
  CHECK(fault.empty());
  CHECK(layouts > 4000);
}

TEST_CASE("coordinates and ranks are inverse, and neighbours are neighbours", "[comm]") {
  bool right = true;
  for_each_layout([&](const ParallelGrid& grid) {
    for (int rank = 0; rank < grid.world_size(); ++rank) {
      const GridCoordinates at = grid.coordinates(rank);
      right = right && grid.world_rank(at) == rank;
      right = right && (at.expert_data * grid.expert() + at.expert) == (at.data * grid.context() + at.context);
      // The next stage holds the same place of the block; the next context rank is the next rank.
      if (at.pipeline + 1 < grid.pipeline()) {
        const auto stages = grid.group_ranks(GroupKind::Pipeline, rank);
        right = right && stages[static_cast<size_t>(at.pipeline + 1)] == rank + grid.stage_size();
      }
      if (at.context + 1 < grid.context()) {
        right = right && grid.group_ranks(GroupKind::Context, rank)[static_cast<size_t>(at.context + 1)] == rank + 1;
      }
    }
  });
  CHECK(right);
}

TEST_CASE("a model group holds every stage and every expert once", "[comm]") {
  const ParallelGrid grid = grid_of(3, 4, 2, 4);
  std::set<std::pair<int, int>> held;
  for (const int rank : grid.group_ranks(GroupKind::Model, 5)) {
    held.insert({grid.coordinates(rank).pipeline, grid.coordinates(rank).expert});
  }
  CHECK(held.size() == 12);
  CHECK(grid.group_size(GroupKind::Model) == 12);
}

TEST_CASE("the worked example of the header", "[comm]") {
  const ParallelGrid grid = grid_of(2, 4, 2, 4);
  CHECK(grid.coordinates(5) == GridCoordinates{.pipeline = 0, .data = 2, .context = 1, .expert_data = 1, .expert = 1});
  CHECK(grid.coordinates(14) == GridCoordinates{.pipeline = 1, .data = 3, .context = 0, .expert_data = 1, .expert = 2});
  CHECK(grid.group_ranks(GroupKind::Pipeline, 5) == std::vector{5, 13});
  CHECK(grid.group_ranks(GroupKind::Data, 5) == std::vector{1, 3, 5, 7});
  CHECK(grid.group_ranks(GroupKind::Context, 5) == std::vector{4, 5});
  CHECK(grid.group_ranks(GroupKind::Loss, 5) == std::vector{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(grid.group_ranks(GroupKind::Expert, 5) == std::vector{4, 5, 6, 7});
  CHECK(grid.group_ranks(GroupKind::ExpertData, 5) == std::vector{1, 5});
  CHECK(grid.group_ranks(GroupKind::Model, 5) == std::vector{4, 5, 6, 7, 12, 13, 14, 15});
  CHECK(grid.describe() == "pipeline 2 x data 4 x context 2 = 16 ranks; expert 4, expert_data 2");
  CHECK_THROWS_AS(grid.coordinates(16), UsageError);
}

TEST_CASE("a layout that does not fill the world is refused with all numbers and remedies", "[comm]") {
  const ParallelOptions options{.pipeline = 2, .data = 2, .context = 3, .expert = 1};
  CHECK_THROWS_MATCHES(
      ParallelGrid::create(options, 24), RecipeError,
      MessageMatches(ContainsSubstring("pipeline 2 x data 2 x context 3 = 12 ranks (expert 1), but the world has 24") &&
                     ContainsSubstring("mpirun -n 12") && ContainsSubstring("parallel.data=4") &&
                     ContainsSubstring("parallel.context=6") && ContainsSubstring("parallel.pipeline=4")));
  // Where no single change helps, none is proposed.
  CHECK_THROWS_MATCHES(ParallelGrid::create(options, 7), RecipeError, MessageMatches(!ContainsSubstring("parallel.data=")));
}

TEST_CASE("experts that do not fit the block are refused with the degrees that do", "[comm]") {
  CHECK_THROWS_MATCHES(ParallelGrid::create({.pipeline = 1, .data = 2, .context = 3, .expert = 4}, 6), RecipeError,
                       MessageMatches(ContainsSubstring("parallel.expert: must divide data 2 x context 3 = 6, got 4") &&
                                      ContainsSubstring("1, 2, 3, 6")));
}

TEST_CASE("degrees below one and absurd ones are refused", "[comm]") {
  CHECK_THROWS_MATCHES(ParallelGrid::create({.data = 0}, 1), RecipeError, MessageMatches(ContainsSubstring("parallel.data")));
  CHECK_THROWS_AS(ParallelGrid::create({.pipeline = int64_t{1} << 62, .data = 4}, 1), RecipeError);
  CHECK_THROWS_AS(ParallelGrid::create({}, 0), RecipeError);
}
