// A stretch's pair of transition and state: the parts of a sequence, merged by their pairs, are the whole.
#include <catch2/generators/catch_generators.hpp>

#include "kernels/gpu_test.h"
#include "kernels/kda/kda_problem.h"
#include "kernels/kda/kda_segment.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

struct Pair {
  Tensor transition, state;
};

KdaSegment operation(const KdaProblem& p, const Pair& pair) {
  return {.k = p.k, .v = p.v, .g = p.g, .beta = p.beta, .cu_seqlens = p.cu_seqlens, .tiles = p.tiles, .transition = pair.transition,
          .final_state = pair.state};
}

Pair pair_for(const KdaProblem& p) {
  const KdaSizes& s = p.sizes;
  const DType dtype = p.q.view().dtype();
  return {.transition = poisoned(dtype, {s.documents(), s.heads, s.key_dim, s.key_dim}),
          .state = poisoned(dtype, {s.documents(), s.heads, s.key_dim, s.value_dim})};
}

Pair run_segment(const KdaProblem& p) {
  Pair pair = pair_for(p);
  ExecContext ctx = ExecContext::cpu();
  kda_segment(ctx, operation(p, pair));
  return pair;
}

// transition x + added, for each document and head.
Tensor apply(const Tensor& transition, const Tensor& x, const Tensor* added) {
  const TensorView &m = transition.view(), &from = x.view();
  const int64_t n = m.size(2), columns = from.size(3);
  Tensor to = Tensor::zeros(DType::F64, from.shape());
  const std::vector<double> a = to_doubles(m), b = to_doubles(from), c = to_doubles(added != nullptr ? added->view() : to.view());
  const auto out = to.values<double>();
  for (int64_t matrix = 0; matrix < m.size(0) * m.size(1); ++matrix) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        const auto at = static_cast<size_t>((matrix * n + i) * columns + j);
        out[at] = c[at];
        for (int64_t r = 0; r < n; ++r) {
          out[at] += a[static_cast<size_t>((matrix * n + i) * n + r)] * b[static_cast<size_t>((matrix * n + r) * columns + j)];
        }
      }
    }
  }
  return to;
}

TEST_CASE("two parts of a sequence, merged by their pairs, are the whole", "[kda]") {
  const int64_t cut = GENERATE(1, 64, 70, 130);
  const KdaTiles tiles = GENERATE(KdaTiles::Dense, KdaTiles::Pairwise);
  const bool slow = GENERATE(false, true);
  const KdaProblem p({.lengths = {130}, .key_dim = 16, .value_dim = 24}, tiles);
  if (slow) {
    for (double& g : p.g.values<double>()) {
      g *= 1e-2;
    }
  }
  const Pair first = run_segment(p.document(0, cut, 0)), second = run_segment(p.document(cut, 130 - cut, 0)), whole = run_segment(p);
  const Tensor wanted = run_recurrent(p).final_state;
  CHECK(difference(apply(whole.transition, p.initial_state, &whole.state), wanted).within(1e-12));
  const Tensor between = apply(first.transition, p.initial_state, &first.state);
  CHECK(difference(apply(second.transition, between, &second.state), wanted).within(1e-12));
  CHECK(difference(apply(second.transition, first.transition, nullptr), whole.transition).within(1e-12));
  CHECK(difference(apply(second.transition, first.state, &second.state), whole.state).within(1e-12));
}

TEST_CASE("packed stretches have pairs of their own, an empty one the identity", "[kda]") {
  const KdaProblem p({.lengths = {70, 0, 33}});
  const Pair packed = run_segment(p), alone = run_segment(p.document(70, 33, 2));
  CHECK(bitwise_equal(rows_of(packed.transition, 2, 3), alone.transition));
  CHECK(bitwise_equal(rows_of(packed.state, 2, 3), alone.state));
  const std::vector<double> identity = to_doubles(packed.transition.view().slice(0, 1, 2));
  for (size_t i = 0; i < identity.size(); ++i) {
    REQUIRE(identity[i] == (i % 256 % 17 == 0 ? 1 : 0));
  }
}

TEST_CASE("planning a segment takes the scratch that running it uses", "[kda]") {
  const KdaProblem p({.lengths = {100, 30}, .key_dim = 32, .value_dim = 48});
  const Pair pair = pair_for(p);
  const auto plan_of = [](const Tensor& tensor) { return planned(tensor.view().dtype(), tensor.view().shape()); };
  ExecContext plan = ExecContext::plan({});
  kda_segment(plan, {.k = plan_of(p.k), .v = plan_of(p.v), .g = plan_of(p.g), .beta = plan_of(p.beta),
                     .cu_seqlens = planned(DType::I64, {3}), .transition = plan_of(pair.transition), .final_state = plan_of(pair.state)});
  ExecContext ctx({}, ExecContext::Mode::Execute, Arena({}, "scratch", plan.scratch().high_water_bytes()));
  kda_segment(ctx, operation(p, pair));
  CHECK(ctx.scratch().high_water_bytes() == plan.scratch().high_water_bytes());
}

TEST_CASE("pairs on the GPU equal the CPU's", "[kda][cuda]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  ExecContext ctx = ExecContext::cuda(kGpu);
  const std::pair<int64_t, int64_t> widths[] = {{16, 40}, {128, 128}, {64, 64}, {136, 24}};
  for (const DType dtype : kGpuTypes) {
    for (const auto& [key_dim, value_dim] : widths) {
      KdaProblem p = KdaProblem({.lengths = {129, 0, 40}, .heads = 3, .key_dim = key_dim, .value_dim = value_dim}).in(DType::F32);
      for (float& g : p.g.values<float>()) {
        g *= 0.02f;  // so that transitions are not near zero
      }
      KdaProblem gpu;
      gpu.sizes = p.sizes;
      const auto move = [&](Tensor& host, Tensor& to, DType type) {
        Tensor rounded(type, host.view().shape());
        for (size_t i = 0; i < static_cast<size_t>(host.view().numel()); ++i) {
          if (type == DType::BF16) {
            rounded.values<BFloat16>()[i] = BFloat16(host.values<float>()[i]);
            host.values<float>()[i] = static_cast<float>(rounded.values<BFloat16>()[i]);
          } else {
            rounded.values<float>()[i] = host.values<float>()[i];
          }
        }
        to = copy_to(rounded, kGpu);
      };
      move(p.k, gpu.k, dtype);
      move(p.v, gpu.v, dtype);
      move(p.g, gpu.g, DType::F32);
      move(p.beta, gpu.beta, DType::F32);
      gpu.cu_seqlens = copy_to(p.cu_seqlens, kGpu);
      const Pair wanted = run_segment(p), start = pair_for(p);
      const Pair got{copy_to(start.transition, kGpu), copy_to(start.state, kGpu)};
      kda_segment(ctx, operation(gpu, got));
      ctx.cuda_context().stream().synchronize();
      const Tensor transition = copy_to(got.transition, Device{}), state = copy_to(got.state, Device{});
      const Difference m = difference(transition, wanted.transition), e = difference(state, wanted.state);
      fmt::print("parity {:<22} {} x {} {:<5} transition {:.2e} state {:.2e}\n", "kda_segment", key_dim, value_dim, to_string(dtype),
                 m.relative_l2, e.relative_l2);
      INFO(m.text << "; state " << e.text);
      CHECK(m.within(dtype == DType::F32 ? 2e-5 : 5e-3));
      CHECK(e.within(dtype == DType::F32 ? 2e-5 : 5e-3));
    }
  }
}

}  // namespace
}  // namespace longhaul
