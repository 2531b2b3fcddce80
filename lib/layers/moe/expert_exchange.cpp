// See expert_exchange.h.
#include "layers/moe/expert_exchange.h"

#include <numeric>

#include "base/cast.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/permute/permute.h"
#include "tensor/host_copy.h"

namespace longhaul {
namespace {

int64_t sum(const std::vector<int64_t>& values) { return std::accumulate(values.begin(), values.end(), int64_t{0}); }

// Place in expert order of each arriving row: arrivals are ordered by (source, expert), places by (expert, source).
void fill_places(const std::vector<int64_t>& counts, int64_t ranks, int64_t local_experts, int64_t* offsets, int64_t* places) {
  std::vector<int64_t> next(static_cast<size_t>(ranks * local_experts));  // next place of (source, expert)
  int64_t place = 0;
  for (int64_t expert = 0; expert < local_experts; ++expert) {
    offsets[expert] = place;
    for (int64_t source = 0; source < ranks; ++source) {
      const auto at = static_cast<size_t>(source * local_experts + expert);
      next[at] = place;
      place += counts[at];
    }
  }
  offsets[local_experts] = place;
  int64_t arrival = 0;
  for (size_t at = 0; at < next.size(); ++at) {
    for (int64_t i = 0; i < counts[at]; ++i) {
      places[arrival++] = next[at] + i;
    }
  }
}

void copy_unless_same(ExecContext& ctx, const TensorView& from, const TensorView& to) {
  if (from.raw() != to.raw()) {
    copy(ctx, from, to);
  }
}

}  // namespace

ExpertExchange::Plan ExpertExchange::plan(ExecContext& ctx, Arena& keep, TensorView offsets, int64_t home_rows) const {
  const int64_t ranks = group_.size;
  const int64_t experts = offsets.size(0) - 1;
  const int64_t local_experts = div_exact(experts, ranks);
  Plan plan;
  plan.home_rows = home_rows;
  plan.local_offsets = take(keep, "moe.local_offsets", DType::I64, {local_experts + 1});
  if (is_local()) {
    plan.local_rows = home_rows;
    copy(ctx, offsets, plan.local_offsets);
    return plan;
  }
  if (ctx.is_planning()) {
    plan.local_rows = 2 * home_rows;
    plan.row_of_arrival = take(keep, "moe.row_of_arrival", DType::I64, {plan.local_rows});
    return plan;
  }

  const HostCopy host_offsets(offsets);
  const auto* rows = host_offsets.view().data<int64_t>();
  std::vector<int64_t> home_by_expert(static_cast<size_t>(experts));
  for (int64_t e = 0; e < experts; ++e) {
    home_by_expert[static_cast<size_t>(e)] = rows[e + 1] - rows[e];
  }
  // [ranks, local experts] from every source: counts travel as rows of a small tensor.
  std::vector<int64_t> arriving(static_cast<size_t>(experts));
  const std::vector<int64_t> one_row_each(static_cast<size_t>(ranks), 1);
  group_.host_data.all_to_all_v({.send = TensorView(home_by_expert.data(), DType::I64, {ranks, local_experts}),
                              .send_rows = one_row_each,
                              .recv = TensorView(arriving.data(), DType::I64, {ranks, local_experts}),
                              .recv_rows = one_row_each});
  for (int64_t r = 0; r < ranks; ++r) {
    const auto first = static_cast<ptrdiff_t>(r * local_experts);
    const auto last = first + static_cast<ptrdiff_t>(local_experts);
    plan.home_counts.push_back(std::accumulate(home_by_expert.begin() + first, home_by_expert.begin() + last, int64_t{0}));
    plan.local_counts.push_back(std::accumulate(arriving.begin() + first, arriving.begin() + last, int64_t{0}));
  }
  plan.local_rows = sum(plan.local_counts);
  LH_CHECK(sum(plan.home_counts) == home_rows, "{} routed rows, {} in the plan", home_rows, sum(plan.home_counts));
  plan.row_of_arrival = take(keep, "moe.row_of_arrival", DType::I64, {plan.local_rows});
  const Tensor local_offsets(DType::I64, {local_experts + 1});
  const Tensor places(DType::I64, {plan.local_rows});
  fill_places(arriving, ranks, local_experts, local_offsets.values<int64_t>().data(), places.values<int64_t>().data());
  copy_between(local_offsets, plan.local_offsets);
  copy_between(places, plan.row_of_arrival);
  return plan;
}

void ExpertExchange::to_experts(ExecContext& ctx, const Plan& plan, TensorView home, TensorView local) const {
  if (is_local()) {
    copy_unless_same(ctx, home, local);
    return;
  }
  const ArenaScope scope(ctx.scratch());
  const TensorView arrived = take(ctx.scratch(), "moe.arrived", local.dtype(), local.shape());
  if (!ctx.is_planning()) {
    group_.device.all_to_all_v({.send = home, .send_rows = plan.home_counts, .recv = arrived, .recv_rows = plan.local_counts});
  }
  permute_forward(ctx, {.x = arrived, .row_of_slot = plan.row_of_arrival, .top_k = 1, .y = local});
}

void ExpertExchange::to_home(ExecContext& ctx, const Plan& plan, TensorView local, TensorView home) const {
  if (is_local()) {
    copy_unless_same(ctx, local, home);
    return;
  }
  const ArenaScope scope(ctx.scratch());
  const TensorView leaving = take(ctx.scratch(), "moe.leaving", local.dtype(), local.shape());
  permute_backward(ctx, {.dy = local, .row_of_slot = plan.row_of_arrival, .top_k = 1, .dx = leaving});
  if (!ctx.is_planning()) {
    group_.device.all_to_all_v({.send = leaving, .send_rows = plan.local_counts, .recv = home, .recv_rows = plan.home_counts});
  }
}

}  // namespace longhaul
