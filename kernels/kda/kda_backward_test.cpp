// Gradients of Kimi Delta Attention: finite differences in double through the recurrence, float against double, packing.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "kernels/kda/kda_problem.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

// Central differences through the recurrence, so that forward and backward cannot share a mistake.
void check_finite_differences(const KdaProblem& p) {
  const Tensor d_o = random_tensor(DType::F64, p.v.view().shape(), "kda.d_o");
  const Tensor dfinal = random_tensor(DType::F64, p.initial_state.view().shape(), "kda.dfinal");
  const KdaGradients grad = run_backward(p, d_o, dfinal);
  const auto loss = [&] {
    const KdaResult r = run_recurrent(p);
    return dot(d_o, r.o) + dot(dfinal, r.final_state);
  };
  const double tolerance = 2e-8;
  CHECK(gradient_error(p.q, grad.dq, loss) < tolerance);
  CHECK(gradient_error(p.k, grad.dk, loss) < tolerance);
  CHECK(gradient_error(p.v, grad.dv, loss) < tolerance);
  CHECK(gradient_error(p.g, grad.dg, loss) < tolerance);
  CHECK(gradient_error(p.beta, grad.dbeta, loss) < tolerance);
  CHECK(gradient_error(p.initial_state, grad.dinitial_state, loss) < tolerance);
}

KdaTiles any_tiles() { return GENERATE(KdaTiles::Dense, KdaTiles::Pairwise); }

TEST_CASE("gradients equal finite differences at ragged lengths", "[kda]") {
  const int64_t length = GENERATE(1, 2, 15, 16, 17, 63, 64, 65, 129);
  check_finite_differences(KdaProblem({.lengths = {length}, .heads = 1, .key_dim = 3, .value_dim = 5}, any_tiles()));
}

TEST_CASE("gradients equal finite differences in packed documents", "[kda]") {
  check_finite_differences(
      KdaProblem({.lengths = {17, 0, 66, 1, 30}, .heads = 2, .key_dim = 4, .value_dim = 3}, any_tiles()));
}

TEST_CASE("gradients equal finite differences at extreme gates", "[kda]") {
  const double gate = GENERATE(0.0, -1e-3, -5.0);
  KdaProblem p({.lengths = {70}, .heads = 1, .key_dim = 4, .value_dim = 4}, any_tiles());
  set_all(p.g, gate);
  check_finite_differences(p);
}

TEST_CASE("gradients equal finite differences with beta 0 and 1", "[kda]") {
  KdaProblem p({.lengths = {40}, .heads = 1, .key_dim = 4, .value_dim = 4}, any_tiles());
  const auto beta = p.beta.values<double>();
  for (size_t i = 0; i < beta.size(); ++i) {
    beta[i] = i % 2 == 0 ? 0 : 1;
  }
  check_finite_differences(p);
}

TEST_CASE("gradients equal finite differences at unbounded gates", "[kda]") {
  KdaProblem p({.lengths = {70}, .heads = 1, .key_dim = 4, .value_dim = 4}, KdaTiles::Pairwise);
  const auto g = p.g.values<double>();
  for (size_t i = 0; i < g.size(); ++i) {
    g[i] = i % 3 == 0 ? 12 * g[i] : 0.1 * g[i];
  }
  check_finite_differences(p);
}

struct NamedPair {
  const char* name;
  const Tensor& a;
  const Tensor& b;
};
std::vector<NamedPair> pairs(const KdaGradients& a, const KdaGradients& b) {
  return {{"dq", a.dq, b.dq}, {"dk", a.dk, b.dk},          {"dv", a.dv, b.dv},
          {"dg", a.dg, b.dg}, {"dbeta", a.dbeta, b.dbeta}, {"dinitial_state", a.dinitial_state, b.dinitial_state}};
}

// All gradients reach 6e-7 or better in every regime; the bar is 2e-6. The regime that matters is the bound: letting the
// pairs i = j, which carry no decay, cancel in the gate gradient costs a factor of sixty there.
TEST_CASE("float gradients have float accuracy in every regime of the gates", "[kda]") {
  const double gate = GENERATE(1.0, 0.0, -0.1, -1.0, -5.0);
  KdaProblem p({.lengths = {130, 64}, .heads = 2, .key_dim = 32, .value_dim = 32}, any_tiles());
  if (gate <= 0) {
    set_all(p.g, gate);
  }
  const KdaProblem p32 = p.in(DType::F32);
  const KdaProblem p64 = p32.in(DType::F64);  // the same rounded inputs
  const Tensor d_o = random_tensor(DType::F32, p.v.view().shape(), "kda.d_o");
  const Tensor dfinal = random_tensor(DType::F32, p.initial_state.view().shape(), "kda.dfinal");
  const KdaGradients wanted = run_backward(p64, converted(d_o, DType::F64), converted(dfinal, DType::F64));
  const KdaGradients got = run_backward(p32, d_o, dfinal);
  for (const NamedPair& pair : pairs(got, wanted)) {
    const Difference d = difference(pair.a, pair.b);
    INFO(pair.name << ": " << d.text);
    CHECK(d.within(2e-6));
  }
}

TEST_CASE("dense and pairwise tiles agree", "[kda]") {
  KdaProblem p({.lengths = {100, 29}, .heads = 2, .key_dim = 16, .value_dim = 16});
  const Tensor d_o = random_tensor(DType::F64, p.v.view().shape(), "kda.d_o");
  const KdaGradients dense = run_backward(p, d_o, {});
  p.tiles = KdaTiles::Pairwise;
  const KdaGradients pairwise = run_backward(p, d_o, {});
  for (const NamedPair& pair : pairs(dense, pairwise)) {
    const Difference d = difference(pair.a, pair.b);
    INFO(pair.name << ": " << d.text);
    CHECK(d.within(1e-12));
  }
}

TEST_CASE("gradients of packed documents are bitwise those of the documents alone", "[kda]") {
  const DType dtype = GENERATE(DType::F32, DType::F64);
  const std::vector<int64_t> lengths = {65, 1, 17, 0, 64, 40};
  const KdaProblem p = KdaProblem({.lengths = lengths}, any_tiles()).in(dtype);
  const Tensor d_o = random_tensor(dtype, p.v.view().shape(), "kda.d_o");
  const Tensor dfinal = random_tensor(dtype, p.initial_state.view().shape(), "kda.dfinal");
  const KdaGradients packed = run_backward(p, d_o, dfinal);
  int64_t begin = 0;
  for (size_t d = 0; d < lengths.size(); ++d) {
    const auto index = static_cast<int64_t>(d);
    const int64_t end = begin + lengths[d];
    const KdaGradients alone =
        run_backward(p.document(begin, lengths[d], index), rows_of(d_o, begin, end), rows_of(dfinal, index, index + 1));
    CHECK(bitwise_equal(rows_of(packed.dq, begin, end), alone.dq));
    CHECK(bitwise_equal(rows_of(packed.dk, begin, end), alone.dk));
    CHECK(bitwise_equal(rows_of(packed.dv, begin, end), alone.dv));
    CHECK(bitwise_equal(rows_of(packed.dg, begin, end), alone.dg));
    CHECK(bitwise_equal(rows_of(packed.dbeta, begin, end), alone.dbeta));
    CHECK(bitwise_equal(rows_of(packed.dinitial_state, index, index + 1), alone.dinitial_state));
    begin = end;
  }
}

TEST_CASE("an empty document passes the state gradient through", "[kda]") {
  const KdaProblem p({.lengths = {0}});
  const Tensor dfinal = random_tensor(DType::F64, p.initial_state.view().shape(), "kda.dfinal");
  const KdaGradients grad = run_backward(p, p.v, dfinal);
  CHECK(bitwise_equal(grad.dinitial_state, dfinal));
}

}  // namespace
}  // namespace longhaul
