// The chunkwise forward against the recurrence and against hand-computed values, in all regimes of the gates.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "kernels/kda/kda_problem.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

void check_against_recurrence(const KdaProblem& p, double tolerance) {
  const KdaResult got = run_chunkwise(p);
  const KdaResult wanted = run_recurrent(p);
  const Difference o = difference(got.o, wanted.o);
  const Difference state = difference(got.final_state, wanted.final_state);
  INFO(o.text);
  INFO(state.text);
  CHECK(o.within(tolerance));
  CHECK(state.within(tolerance));
  for (const double x : to_doubles(got.o)) {
    REQUIRE(std::isfinite(x));
  }
}

// 1e-12 in double; 1e-5 in float, where both sides round about a hundred times.
void check_in_both_types(const KdaProblem& p, double float_tolerance = 1e-5) {
  check_against_recurrence(p, 1e-12);
  check_against_recurrence(p.in(DType::F32), float_tolerance);
}

KdaTiles any_tiles() { return GENERATE(KdaTiles::Dense, KdaTiles::Pairwise); }

// Every key equal to the first, up to `spread`.
void make_keys_parallel(const KdaProblem& p, double spread) {
  const auto k = p.k.values<double>();
  const int64_t n = p.sizes.heads * p.sizes.key_dim;
  for (size_t i = static_cast<size_t>(n); i < k.size(); ++i) {
    k[i] = k[i % static_cast<size_t>(n)] + spread * k[i];
  }
}

TEST_CASE("chunkwise equals the recurrence at every length", "[kda]") {
  const int64_t length = GENERATE(1, 2, 15, 16, 17, 63, 64, 65, 127, 129);
  check_in_both_types(KdaProblem({.lengths = {length}}, any_tiles()));
}

TEST_CASE("key and value widths that differ and are no multiple of a vector", "[kda]") {
  const auto [key_dim, value_dim] = GENERATE(std::pair<int64_t, int64_t>{1, 1}, std::pair<int64_t, int64_t>{5, 19},
                                             std::pair<int64_t, int64_t>{40, 8}, std::pair<int64_t, int64_t>{32, 128});
  check_in_both_types(KdaProblem({.lengths = {77}, .heads = 3, .key_dim = key_dim, .value_dim = value_dim}, any_tiles()));
}

TEST_CASE("all gates at the bound of -5", "[kda]") {
  const KdaProblem p({.lengths = {64, 100}, .key_dim = 32}, any_tiles());
  set_all(p.g, -5);
  check_in_both_types(p);
}

// KD-04 of the field: the log gate is 0, nothing is ever forgotten, beta is 1.
TEST_CASE("no decay, beta 1, unit keys over a thousand tokens", "[kda]") {
  const KdaProblem p({.lengths = {1024}, .heads = 1, .key_dim = 32, .value_dim = 32}, any_tiles());
  set_all(p.g, 0);
  set_all(p.beta, 1);
  check_in_both_types(p);
}

TEST_CASE("nearly parallel keys with beta near 1", "[kda]") {
  const double spread = GENERATE(0.0, 1e-3, 0.1);
  const KdaProblem p({.lengths = {200}, .key_dim = 32}, any_tiles());
  make_keys_parallel(p, spread);
  set_all(p.g, -1e-3);
  set_all(p.beta, 0.999);
  check_in_both_types(p);
}

TEST_CASE("unbounded gates in pairwise tiles", "[kda]") {
  const KdaProblem p({.lengths = {130, 33}, .key_dim = 32}, KdaTiles::Pairwise);
  const auto g = p.g.values<double>();
  SECTION("down to -60, mixed with almost none") {
    for (size_t i = 0; i < g.size(); ++i) {
      g[i] = i % 3 == 0 ? 12 * g[i] : (i % 3 == 1 ? 1e-3 * g[i] : g[i]);
    }
    check_in_both_types(p);
  }
  SECTION("all of -60") {
    set_all(p.g, -60);
    check_in_both_types(p);
  }
  SECTION("so strong that every decay is zero") {
    set_all(p.g, -2000);
    check_in_both_types(p);
  }
}

TEST_CASE("no initial state is a zero initial state", "[kda]") {
  KdaProblem p({.lengths = {70, 5}}, any_tiles());
  set_all(p.initial_state, 0);
  const KdaResult zero = run_chunkwise(p);
  p.initial_state = Tensor();
  const KdaResult absent = run_chunkwise(p);
  CHECK(bitwise_equal(zero.o, absent.o));
  CHECK(bitwise_equal(zero.final_state, absent.final_state));
  check_against_recurrence(p, 1e-12);
}

TEST_CASE("saved chunk states are the states entering the chunks", "[kda]") {
  const KdaProblem p({.lengths = {129, 0, 64, 3}});
  const KdaResult r = run_chunkwise(p);
  // Chunks: document 0 at 0, 1, 2; document 2 at 3; document 3 at 4.
  CHECK(bitwise_equal(rows_of(r.chunk_states, 0, 1), rows_of(p.initial_state, 0, 1)));
  CHECK(bitwise_equal(rows_of(r.chunk_states, 3, 4), rows_of(p.initial_state, 2, 3)));
  CHECK(bitwise_equal(rows_of(r.chunk_states, 4, 5), rows_of(p.initial_state, 3, 4)));
  CHECK(bitwise_equal(rows_of(r.chunk_states, 2, 3), run_chunkwise(p.document(0, 128, 0)).final_state));
}

TEST_CASE("documents without tokens and no tokens at all", "[kda]") {
  const std::vector<int64_t> lengths =
      GENERATE(std::vector<int64_t>{0}, std::vector<int64_t>{}, std::vector<int64_t>{0, 20, 0, 0, 65, 0});
  const KdaProblem p({.lengths = lengths}, any_tiles());
  const KdaResult r = run_chunkwise(p);
  for (size_t d = 0; d < lengths.size(); ++d) {
    if (lengths[d] == 0) {
      const auto document = static_cast<int64_t>(d);
      CHECK(bitwise_equal(rows_of(r.final_state, document, document + 1), rows_of(p.initial_state, document, document + 1)));
    }
  }
  if (!lengths.empty()) {
    check_in_both_types(p);
  }
}

// One head, K = 2, V = 1, three tokens; worked out by hand. Forgetting the boundary gives 0.68 and -0.497.
TEST_CASE("hand-computed example with and without a document boundary", "[kda]") {
  const auto recurrent = GENERATE(false, true);
  const auto lengths = GENERATE(std::vector<int64_t>{3}, std::vector<int64_t>{1, 2});
  KdaProblem p({.lengths = lengths, .heads = 1, .key_dim = 2, .value_dim = 1}, any_tiles());
  p.scale = 1;
  p.q = Tensor::from<double>({1, 0, 0, 1, 0.6, 0.8}, {3, 1, 2});
  p.k = Tensor::from<double>({1, 0, 0.6, 0.8, 0, 1}, {3, 1, 2});
  p.v = Tensor::from<double>({1, 2, -1}, {3, 1, 1});
  p.g = Tensor::from<double>({0, 0, std::log(0.5), std::log(0.25), std::log(0.5), 0}, {3, 1, 2});
  p.beta = Tensor::from<double>({1, 0.5, 1}, {3, 1});
  p.initial_state = Tensor();
  const KdaResult r = recurrent ? run_recurrent(p) : run_chunkwise(p);
  const auto o = r.o.values<double>();
  CHECK_THAT(o[0], Catch::Matchers::WithinAbs(1.0, 1e-14));
  CHECK_THAT(o[1], Catch::Matchers::WithinAbs(lengths.size() == 1 ? 0.68 : 0.8, 1e-14));
  CHECK_THAT(o[2], Catch::Matchers::WithinAbs(lengths.size() == 1 ? -0.497 : -0.62, 1e-14));
}

TEST_CASE("packed documents are bitwise the documents alone", "[kda]") {
  const DType dtype = GENERATE(DType::F32, DType::F64);
  const std::vector<int64_t> lengths = {65, 1, 17, 0, 64, 40};
  const KdaProblem p = KdaProblem({.lengths = lengths}, any_tiles()).in(dtype);
  const KdaResult packed = run_chunkwise(p);
  int64_t begin = 0;
  for (size_t d = 0; d < lengths.size(); ++d) {
    const auto index = static_cast<int64_t>(d);
    const KdaResult alone = run_chunkwise(p.document(begin, lengths[d], index));
    CHECK(bitwise_equal(rows_of(packed.o, begin, begin + lengths[d]), alone.o));
    CHECK(bitwise_equal(rows_of(packed.final_state, index, index + 1), alone.final_state));
    begin += lengths[d];
  }
}

TEST_CASE("planning takes the same scratch and touches no data", "[kda]") {
  const KdaSizes sizes{.lengths = {100, 30}, .key_dim = 32, .value_dim = 48};
  const KdaProblem p(sizes);
  const auto plan_of = [](const Tensor& tensor) { return planned(tensor.view().dtype(), tensor.view().shape()); };
  const Shape states{kda_max_chunks(130, 2), 2, 32, 48};
  ExecContext plan = ExecContext::plan({});
  kda_forward(plan, {.q = plan_of(p.q),
                     .k = plan_of(p.k),
                     .v = plan_of(p.v),
                     .g = plan_of(p.g),
                     .beta = plan_of(p.beta),
                     .cu_seqlens = planned(DType::I64, {3}),
                     .o = plan_of(p.v),
                     .chunk_states = planned(DType::F64, states)});
  const Tensor o = poisoned(DType::F64, p.v.view().shape());
  const Tensor chunk_states = poisoned(DType::F64, states);
  ExecContext ctx({}, ExecContext::Mode::Execute, Arena({}, "scratch", plan.scratch().high_water_bytes()));
  kda_forward(ctx, {.q = p.q,
                    .k = p.k,
                    .v = p.v,
                    .g = p.g,
                    .beta = p.beta,
                    .cu_seqlens = p.cu_seqlens,
                    .o = o,
                    .chunk_states = chunk_states});
  CHECK(ctx.scratch().high_water_bytes() == plan.scratch().high_water_bytes());
  CHECK(ctx.scratch().used_bytes() == 0);
}

// A machine without a GPU checks a recipe for one.
TEST_CASE("planning for a GPU accepts bf16 with float gates", "[kda]") {
  ExecContext plan = ExecContext::plan({.kind = DeviceKind::Cuda});
  const TensorView x = planned(DType::BF16, {100, 2, 16});
  kda_forward(plan, {.q = x,
                     .k = x,
                     .v = x,
                     .g = planned(DType::F32, {100, 2, 16}),
                     .beta = planned(DType::F32, {100, 2}),
                     .cu_seqlens = planned(DType::I64, {2}),
                     .o = x});
  ExecContext cpu = ExecContext::plan({});
  CHECK_THROWS_AS(kda_forward(cpu, {.q = x,
                                    .k = x,
                                    .v = x,
                                    .g = planned(DType::F32, {100, 2, 16}),
                                    .beta = planned(DType::F32, {100, 2}),
                                    .cu_seqlens = planned(DType::I64, {2}),
                                    .o = x}),
                  ShapeError);
}

TEST_CASE("wrong arguments are named", "[kda]") {
  const KdaProblem p({.lengths = {4}});
  const auto good = [&] {
    return KdaForward{.q = p.q, .k = p.k, .v = p.v, .g = p.g, .beta = p.beta, .cu_seqlens = p.cu_seqlens, .o = p.v};
  };
  ExecContext ctx = ExecContext::plan({});
  check_shape_error("k", [&] {
    KdaForward op = good();
    op.k = planned(DType::F64, {4, 2, 8});
    kda_forward(ctx, op);
  });
  check_shape_error("g", [&] {
    KdaForward op = good();
    op.g = planned(DType::F32, {4, 2, 16});
    kda_forward(ctx, op);
  });
  check_shape_error("chunk_states", [&] {
    KdaForward op = good();
    op.chunk_states = planned(DType::F64, {1, 2, 16, 16});
    kda_forward(ctx, op);
  });
  const auto check_boundaries = [&](const std::vector<int64_t>& bounds) {
    check_shape_error("cu_seqlens", [&] {
      KdaForward op = good();
      const Tensor cu_seqlens = Tensor::from(bounds, {narrow<int64_t>(bounds.size())});
      op.cu_seqlens = cu_seqlens;
      ExecContext run = ExecContext::cpu();
      kda_forward(run, op);
    });
  };
  check_boundaries({0, 3});
  check_boundaries({1, 4});
  check_boundaries({0, 5, 4});
}

}  // namespace
}  // namespace longhaul
