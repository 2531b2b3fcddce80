// See route_histogram.h. Checks the arguments and picks the backend.
#include "kernels/route_histogram/route_histogram.h"

#include "kernels/expect.h"
#include "kernels/route_histogram/route_histogram_cpu.h"
#include "kernels/route_histogram/route_histogram_cuda.h"

namespace longhaul {

void route_histogram(ExecContext& ctx, const RouteHistogram& op) {
  constexpr std::string_view kName = "route_histogram";
  expect_rank(kName, "scores", op.scores, 2, "[tokens, experts]");
  const int64_t tokens = op.scores.size(0);
  const int64_t experts = op.scores.size(1);
  expect(kName, "scores", op.scores, accurate_type(op.scores.dtype()), {tokens, experts});
  expect(kName, "cutoff", op.cutoff, op.scores.dtype(), {tokens});
  expect_rank(kName, "experts", op.experts, 2, "[tokens, top_k]");
  expect(kName, "experts", op.experts, DType::I32, {tokens, op.experts.size(1)});
  expect_rank(kName, "counts", op.counts, 2, "[experts, bins]");
  expect(kName, "counts", op.counts, DType::I64, {experts, op.counts.size(1)});
  expect(kName, "load", op.load, DType::I64, {experts});
  if (op.counts.size(1) < 1 || !(op.low < op.high)) {
    throw ShapeError("{}: wants at least one bin on a non-empty interval, got {} bins on [{}, {}]", kName, op.counts.size(1),
                     op.low, op.high);
  }
  if (ctx.is_planning()) {
    return;
  }
  if (ctx.device().kind == DeviceKind::Cuda) {
    cuda::route_histogram(ctx, op);
    return;
  }
  cpu::route_histogram(op);
}

}  // namespace longhaul
