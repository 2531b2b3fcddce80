// The backward kernels, emulated on the CPU, against the gradients of the recurrence in double.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>
#include <memory>

#include "kernels/kda/cuda/emulation/problem.h"
#include "kernels/kda/cuda/kda_cuda.h"

namespace longhaul::kda::cuda {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

std::unique_ptr<std::byte, decltype(&std::free)> memory(int64_t bytes) {
  auto* block = static_cast<std::byte*>(std::aligned_alloc(1024, static_cast<size_t>((bytes + 1023) / 1024 * 1024)));
  std::fill_n(block, bytes, std::byte{0xff});
  return {block, &std::free};
}

struct Result {
  Doubles dq, dk, dv, dg, dbeta, dinitial, da_log, ddt_bias;
};

struct How {
  Products products = Products::Warpgroup;
  int64_t segment_chunks = 0;
  Saving saving = Saving::States;
  Gates gates = Gates::Bounded;
};

Result run(const Problem& p, bool raw, const Doubles& d_o, const Doubles& dfinal, const How& how) {
  const Sizes sizes{.tokens = p.tokens(), .heads = p.heads, .head_dim = p.dim, .documents = p.documents(), .saving = how.saving};
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
  const Halves gradient = to_halves(d_o);
  const Floats dfinal_state = to_floats(dfinal);
  const int64_t stride = p.heads * p.dim;
  const InputArrays in{.q = q.data(),
                       .k = k.data(),
                       .v = v.data(),
                       .q_stride = stride,
                       .k_stride = stride,
                       .v_stride = stride,
                       .g = raw ? nullptr : g.data(),
                       .beta = raw ? nullptr : beta.data(),
                       .g_stride = stride,
                       .gate = raw ? gate.data() : nullptr,
                       .beta_logits = beta_logits.data(),
                       .a_log = a_log.data(),
                       .dt_bias = dt_bias.data(),
                       .cu_seqlens = p.cu_seqlens.data(),
                       .scale = static_cast<float>(p.scale),
                       .gates = how.gates};
  Halves o(p.v.size(), 0x7fff);
  const auto saved = memory(saved_bytes(sizes));
  {
    const auto workspace = memory(forward_workspace_bytes(sizes, how.segment_chunks));
    REQUIRE(forward({.sizes = sizes,
                     .in = in,
                     .initial_state = initial.data(),
                     .o = o.data(),
                     .o_stride = stride,
                     .saved = saved.get(),
                     .workspace = workspace.get(),
                     .segment_chunks = how.segment_chunks,
                     .products = how.products}) == 0);
  }
  // fp32, or bf16 with raw inputs.
  const auto outputs = [&](size_t count) { return Floats(raw ? count / 2 + count % 2 : count, NAN); };
  Floats dq = outputs(p.q.size()), dk = outputs(p.q.size()), dv = outputs(p.q.size()), dg = outputs(p.q.size());
  Floats dbeta = outputs(p.beta.size());
  Floats dinitial(p.initial.size(), NAN);
  Floats da_log(p.a_log.size(), NAN);
  Floats ddt_bias(p.dt_bias.size(), NAN);
  const auto workspace = memory(backward_workspace_bytes(sizes, how.segment_chunks));
  REQUIRE(backward({.sizes = sizes,
                    .in = in,
                    .d_o = gradient.data(),
                    .d_o_stride = stride,
                    .dfinal_state = dfinal_state.data(),
                    .saved = saved.get(),
                    .dq = dq.data(),
                    .dk = dk.data(),
                    .dv = dv.data(),
                    .dg = dg.data(),
                    .dbeta = dbeta.data(),
                    .da_log = da_log.data(),
                    .ddt_bias = ddt_bias.data(),
                    .dinitial_state = dinitial.data(),
                    .workspace = workspace.get(),
                    .segment_chunks = how.segment_chunks,
                    .products = how.products}) == 0);
  const auto values = [&](const Floats& x, size_t count) {
    if (!raw) {
      return from_floats(x);
    }
    const auto* halves = reinterpret_cast<const uint16_t*>(x.data());
    return from_halves(Halves(halves, halves + count));
  };
  return {.dq = values(dq, p.q.size()), .dk = values(dk, p.q.size()), .dv = values(dv, p.q.size()), .dg = values(dg, p.q.size()),
          .dbeta = values(dbeta, p.beta.size()), .dinitial = from_floats(dinitial), .da_log = from_floats(da_log),
          .ddt_bias = from_floats(ddt_bias)};
}

void check(const Problem& p, Kind kind, const Doubles& d_o, const Doubles& dfinal, const How& how = {}) {
  const bool raw = kind == Kind::Raw;
  How with = how;
  with.gates = is_unbounded(kind) ? Gates::Unbounded : how.gates;
  const Result out = run(p, raw, d_o, dfinal, with);
  Gradients expected = reference_backward(p, d_o, dfinal);
  if (raw) {
    expected = through_raw_inputs(p, std::move(expected));
  }
  struct Row {
    const char* name;
    const Doubles& got;
    const Doubles& want;
    double bound;
  };
  // Bounds of the published kernels' own tests, relative RMS.
  std::vector<Row> rows{{"dq", out.dq, expected.dq, 0.008},         {"dk", out.dk, expected.dk, 0.008},
                        {"dv", out.dv, expected.dv, 0.008},         {"dg", out.dg, expected.dg, 0.02},
                        {"dbeta", out.dbeta, expected.dbeta, 0.02}, {"dinitial", out.dinitial, expected.dinitial, 0.008}};
  if (raw) {
    rows.push_back({"da_log", out.da_log, expected.da_log, 0.02});
    rows.push_back({"ddt_bias", out.ddt_bias, expected.ddt_bias, 0.02});
  }
  for (const Row& row : rows) {
    const double error = relative_error(row.got, row.want);
    INFO("dim " << p.dim << " kind " << static_cast<int>(kind) << " " << row.name << " " << error);
    if (std::getenv("LH_SHOW") != nullptr) {
      WARN("dim " << p.dim << " kind " << static_cast<int>(kind) << " " << row.name << " " << error);
    }
    CHECK(error < row.bound);
  }
}

void check(const std::vector<int64_t>& lengths, int64_t heads, int64_t dim, Kind kind, const How& how = {}, double gradient_scale = 1) {
  const Problem p = make_problem(lengths, heads, dim, kind, 17);
  check(p, kind, rounded_to_bf16(normal(p.v.size(), 31, gradient_scale)),
        from_floats(to_floats(normal(p.initial.size(), 32, 0.3 * gradient_scale))), how);
}

}  // namespace

TEST_CASE("emulated backward: a ragged document", "[kda_cuda_backward]") {
  check({150}, 2, 64, Kind::Usual);
  check({150}, 1, 128, Kind::Usual);
  check({90}, 1, 128, Kind::Usual, {.products = Products::Warp});
}

TEST_CASE("emulated backward: packed documents, one of them empty", "[kda_cuda_backward]") {
  check({17, 64, 0, 1, 65}, 2, 64, Kind::Usual);
}

TEST_CASE("emulated backward: segments", "[kda_cuda_backward]") {
  check({300, 70}, 1, 64, Kind::NoDecay, {.segment_chunks = 1});
  check({300, 70}, 1, 128, Kind::Usual, {.segment_chunks = 2});
}

TEST_CASE("emulated backward: raw inputs", "[kda_cuda_backward]") {
  check({150}, 2, 64, Kind::Raw);
  check({17, 64, 0, 1, 65}, 2, 128, Kind::Raw);
  check({300, 70}, 1, 64, Kind::Raw, {.segment_chunks = 1, .saving = Saving::Images});
}

TEST_CASE("emulated backward: images of the chunks as forward saved them", "[kda_cuda_backward]") {
  check({150}, 1, 128, Kind::Usual, {.saving = Saving::Images});
}

TEST_CASE("emulated backward: small gradients", "[kda_cuda_backward]") {
  check({130}, 1, 64, Kind::Saturated, {}, 1e-8);
  check({130}, 1, 64, Kind::Usual, {}, 1e-8);
  check({130}, 1, 64, Kind::ParallelKeys, {}, 1e-8);
  check({130}, 1, 128, Kind::Usual, {}, 1e-8);
}

// Columns of zeros have no unit of their own, and the others are in different ones.
TEST_CASE("emulated backward: value columns of very different sizes", "[kda_cuda_backward]") {
  const int64_t dim = GENERATE(64, 128);
  Problem p = make_problem({130}, 1, dim, Kind::Usual, 17);
  Doubles d_o = normal(p.v.size(), 31, 1e-7);
  Doubles dfinal = normal(p.initial.size(), 32, 3e-8);
  const auto scale_columns = [](Doubles& x, int64_t column, double factor) {
    for (size_t i = static_cast<size_t>(column); i < x.size(); i += 16) {
      x[i] *= factor;
    }
  };
  for (Doubles* x : {&d_o, &dfinal}) {
    scale_columns(*x, 3, 0);
    scale_columns(*x, 5, 1.0 / 64);
    scale_columns(*x, 6, 64);
  }
  for (Doubles* x : {&p.v, &p.initial}) {
    for (int64_t column = 0; column < 16; ++column) {
      scale_columns(*x, column, column == 4 ? 0 : column == 7 ? 1e-6 : 1e-5);
    }
  }
  p.v = rounded_to_bf16(p.v);
  p.initial = from_floats(to_floats(p.initial));
  check(p, Kind::Usual, rounded_to_bf16(d_o), from_floats(to_floats(dfinal)));
}

TEST_CASE("emulated backward: extreme inputs", "[kda_cuda_backward]") {
  for (const Kind kind : {Kind::Saturated, Kind::NoDecay, Kind::ParallelKeys}) {
    check({130}, 1, 64, kind);
    check({130}, 1, 128, kind);
  }
}

TEST_CASE("emulated backward: gates without a bound", "[kda_cuda_backward]") {
  for (const Kind kind : {Kind::Softplus, Kind::Wiped, Kind::Mixed}) {
    check({130}, 1, 64, kind);
    check({130}, 1, 128, kind);
  }
  for (const Kind kind : {Kind::Saturated, Kind::NoDecay, Kind::ParallelKeys}) {
    check({130}, 1, 128, kind, {.gates = Gates::Unbounded});
  }
  check({17, 64, 0, 1, 65}, 2, 64, Kind::Softplus);
  check({300, 70}, 1, 64, Kind::Mixed, {.segment_chunks = 2, .saving = Saving::Images});
  check({130}, 1, 128, Kind::Softplus, {}, 1e-8);
}

}  // namespace longhaul::kda::cuda
