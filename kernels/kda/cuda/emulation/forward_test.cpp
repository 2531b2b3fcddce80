// The forward kernels, emulated on the CPU, against the recurrence in double.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <memory>

#include "kernels/kda/cuda/emulation/problem.h"
#include "kernels/kda/cuda/kda_cuda.h"

namespace longhaul::kda::cuda {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

struct Output {
  Halves o;
  Floats final_state;
};

std::unique_ptr<std::byte, decltype(&std::free)> memory(int64_t bytes) {
  auto* block = static_cast<std::byte*>(std::aligned_alloc(1024, static_cast<size_t>((bytes + 1023) / 1024 * 1024)));
  std::fill_n(block, bytes, std::byte{0xff});
  return {block, &std::free};
}

Output run(const Problem& p, Kind kind, Gates gates, Products products, int64_t segment_chunks = 0,
           Schedule schedule = Schedule::Auto) {
  const Sizes sizes{.tokens = p.tokens(), .heads = p.heads, .head_dim = p.dim, .documents = p.documents()};
  const bool raw = kind == Kind::Raw;
  const Halves q = to_halves(raw ? p.q_raw : p.q);
  const Halves k = to_halves(raw ? p.k_raw : p.k);
  const Halves v = to_halves(p.v);
  const Floats g = to_floats(p.g);
  const Floats beta = to_floats(p.beta);
  const Halves gate = to_halves(p.gate);
  const Halves beta_logits = to_halves(p.beta_logits);
  const Floats a_log = to_floats(p.a_log);
  const Floats dt_bias = to_floats(p.dt_bias);
  const Floats initial = to_floats(p.initial);
  Output out{.o = Halves(p.v.size(), 0x7fff), .final_state = Floats(p.initial.size(), NAN)};
  const auto workspace = memory(forward_workspace_bytes(sizes, segment_chunks));
  const auto saved = memory(saved_bytes(sizes));
  const int64_t stride = p.heads * p.dim;
  const int error = forward({.sizes = sizes,
                             .in = {.q = q.data(),
                                    .k = k.data(),
                                    .v = v.data(),
                                    .q_stride = stride,
                                    .k_stride = stride,
                                    .v_stride = stride,
                                    .g = g.data(),
                                    .beta = beta.data(),
                                    .g_stride = stride,
                                    .gate = raw ? gate.data() : nullptr,
                                    .beta_logits = beta_logits.data(),
                                    .a_log = a_log.data(),
                                    .dt_bias = dt_bias.data(),
                                    .cu_seqlens = p.cu_seqlens.data(),
                                    .scale = static_cast<float>(p.scale),
                                    .gates = gates},
                             .initial_state = initial.data(),
                             .o = out.o.data(),
                             .o_stride = stride,
                             .final_state = out.final_state.data(),
                             .saved = saved.get(),
                             .workspace = workspace.get(),
                             .segment_chunks = segment_chunks,
                             .products = products,
                             .schedule = schedule});
  REQUIRE(error == 0);
  return out;
}

void check(const std::vector<int64_t>& lengths, int64_t heads, int64_t dim, Kind kind, Products products,
           int64_t segment_chunks = 0, Gates gates = Gates::Bounded) {
  const Problem p = make_problem(lengths, heads, dim, kind, 17);
  const Output out = run(p, kind, is_unbounded(kind) ? Gates::Unbounded : gates, products, segment_chunks);
  const ForwardResult expected = reference_forward(p);
  const double o_error = relative_error(from_halves(out.o), expected.o);
  const double state_error = relative_error(from_floats(out.final_state), expected.final_state);
  INFO("o " << o_error << " final state " << state_error);
  if (std::getenv("LH_SHOW") != nullptr) {
    WARN("dim " << dim << " kind " << static_cast<int>(kind) << ": o " << o_error << " final state " << state_error);
  }
  CHECK(o_error < 0.005);
  CHECK(state_error < 0.005);
}

}  // namespace

TEST_CASE("emulated kernels: a ragged document of 64 channels", "[kda_cuda]") {
  check({150}, 2, 64, Kind::Usual, Products::Warp);
  check({150}, 2, 64, Kind::Usual, Products::Warpgroup);
}

TEST_CASE("emulated kernels: a ragged document of 128 channels", "[kda_cuda]") {
  check({150}, 1, 128, Kind::Usual, Products::Warp);
  check({150}, 1, 128, Kind::Usual, Products::Warpgroup);
}

TEST_CASE("emulated kernels: packed documents, one of them empty", "[kda_cuda]") {
  check({17, 64, 0, 1, 65}, 2, 64, Kind::Usual, Products::Warpgroup);
}

TEST_CASE("emulated kernels: segments", "[kda_cuda]") {
  check({300, 70}, 1, 64, Kind::NoDecay, Products::Warpgroup, 1);
  check({300, 70}, 1, 128, Kind::Usual, Products::Warpgroup, 2);
}

TEST_CASE("emulated kernels: extreme inputs", "[kda_cuda]") {
  for (const Kind kind : {Kind::Saturated, Kind::NoDecay, Kind::ParallelKeys, Kind::Raw}) {
    check({130}, 1, 64, kind, Products::Warpgroup);
    check({130}, 1, 128, kind, Products::Warpgroup);
  }
}

TEST_CASE("emulated kernels: gates without a bound", "[kda_cuda]") {
  for (const Kind kind : {Kind::Softplus, Kind::Wiped, Kind::Mixed}) {
    check({130}, 1, 64, kind, Products::Warpgroup);
    check({130}, 1, 128, kind, Products::Warpgroup);
  }
  for (const Kind kind : {Kind::Usual, Kind::NoDecay, Kind::ParallelKeys}) {
    check({130}, 1, 128, kind, Products::Warpgroup, 0, Gates::Unbounded);
  }
  check({17, 64, 0, 1, 65}, 2, 64, Kind::Softplus, Products::Warpgroup);
  check({300, 70}, 1, 64, Kind::Mixed, Products::Warpgroup, 2);
}

// Documents of several parts, more heads than walkers, and chunks that have no image of their own.
TEST_CASE("emulated kernels: chunks prepared beside the walk give the same bits", "[kda_cuda]") {
  for (const Kind kind : {Kind::Usual, Kind::Raw}) {
    const Problem p = make_problem({2500, 70, 0, 1}, 3, 128, kind, 17);
    const Output steps = run(p, kind, Gates::Bounded, Products::Warpgroup, 0, Schedule::Steps);
    const Output flow = run(p, kind, Gates::Bounded, Products::Warpgroup, 0, Schedule::Flow);
    CHECK(relative_error(from_halves(flow.o), from_halves(steps.o)) < 0.003);
    CHECK(relative_error(from_halves(flow.o), reference_forward(p).o) < 0.005);
    CHECK(relative_error(from_floats(flow.final_state), from_floats(steps.final_state)) < 0.001);
  }
}

}  // namespace longhaul::kda::cuda
