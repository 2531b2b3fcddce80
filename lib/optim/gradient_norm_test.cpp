// The global gradient norm counts what ranks hold in common once, and each expert once, wherever it lies
// (https://github.com/deepspeedai/DeepSpeed/pull/8478). Ranks are threads.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cmath>

#include "comm/thread_host_comm.h"
#include "model/model_test_support.h"
#include "optim/optimizer.h"

namespace longhaul {
namespace {

using namespace testing;

TEST_CASE("the gradient norm counts shared gradients once and each rank's experts", "[optim]") {
  const ModelOptions options = tiny_k3();
  // Shared gradients of norm 2 on both ranks, an expert of norm 4 on rank 0 and none with a gradient on rank 1.
  std::array<double, 2> norms{};
  std::array<double, 2> factors{};
  run_ranks(2, [&](HostComm& host, int rank) {
    const auto device = host.make_cpu_device_comm({.name = "expert"});
    const Group group{"expert", rank, host.size(), host, *device};
    const StageModel model(options, whole(options), DType::F32, group);
    ExecContext ctx = ExecContext::cpu();
    Parameters parameters(model, ctx);
    parameters.zero_gradients(ctx);
    parameters.dense_gradients().data<double>()[3] = 2;
    if (rank == 0) {
      parameters.expert_gradients().data<double>()[5] = -4;
    }
    double squares = 0;
    const TensorView sum(&squares, DType::F64, {1});
    add_gradient_squares(ctx, parameters, group, sum);
    device->all_reduce_sum(sum);
    const auto at = static_cast<size_t>(rank);
    norms[at] = std::sqrt(squares);
    factors[at] = clip_factor(norms[at], 1.0);
  });
  CHECK(norms[0] == Catch::Approx(4.472136).epsilon(1e-7));
  CHECK(norms[1] == norms[0]);
  CHECK(factors[1] == factors[0]);
  CHECK(factors[0] == Catch::Approx(1 / 4.472136).epsilon(1e-7));
}

}  // namespace
}  // namespace longhaul
