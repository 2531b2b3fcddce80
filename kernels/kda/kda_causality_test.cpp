// Bitwise causality of Kimi Delta Attention: what follows a token, or whether anything follows, changes no bit of its
// output, of the state after it, or of the gradients of a loss on the prefix. An anchor row in the future, a product whose
// rounding depends on the number of rows, or a mask by multiplication would each fail here.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "kernels/kda/kda_problem.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

struct Case {
  DType dtype;
  KdaTiles tiles;
  int64_t prefix;
};

Case any_case() {
  Case c;
  c.dtype = GENERATE(DType::F32, DType::F64);
  c.tiles = GENERATE(KdaTiles::Dense, KdaTiles::Pairwise);
  c.prefix = GENERATE(1, 7, 8, 15, 16, 17, 63, 64, 65, 80);
  return c;
}

// d_o of the prefix, and zeros after it.
Tensor prefix_loss(const Case& c, const KdaProblem& whole) {
  Tensor d_o = Tensor::zeros(c.dtype, whole.v.view().shape());
  const TensorView head = d_o.view().slice(0, 0, c.prefix);
  const Tensor values = random_tensor(c.dtype, head.shape(), "kda.d_o");
  std::memcpy(head.raw(), values.view().raw(), static_cast<size_t>(head.bytes()));
  return d_o;
}

void check_prefix_output(const Case& c, const KdaProblem& whole, const KdaResult& wanted) {
  CHECK(bitwise_equal(rows_of(run_chunkwise(whole).o, 0, c.prefix), rows_of(wanted.o, 0, c.prefix)));
}

void check_prefix_gradients(const Case& c, const KdaProblem& whole, const KdaGradients& wanted) {
  const KdaGradients got = run_backward(whole, prefix_loss(c, whole), {});
  CHECK(bitwise_equal(rows_of(got.dq, 0, c.prefix), rows_of(wanted.dq, 0, c.prefix)));
  CHECK(bitwise_equal(rows_of(got.dk, 0, c.prefix), rows_of(wanted.dk, 0, c.prefix)));
  CHECK(bitwise_equal(rows_of(got.dv, 0, c.prefix), rows_of(wanted.dv, 0, c.prefix)));
  CHECK(bitwise_equal(rows_of(got.dg, 0, c.prefix), rows_of(wanted.dg, 0, c.prefix)));
  CHECK(bitwise_equal(rows_of(got.dbeta, 0, c.prefix), rows_of(wanted.dbeta, 0, c.prefix)));
  CHECK(bitwise_equal(got.dinitial_state, wanted.dinitial_state));
  const auto total = whole.sizes.tokens();
  for (const Tensor* tensor : {&got.dq, &got.dk, &got.dv, &got.dg, &got.dbeta}) {
    for (const double x : to_doubles(rows_of(*tensor, c.prefix, total))) {
      REQUIRE(x == 0);  // a loss on the prefix has no gradient after it
    }
  }
}

void set_future(const KdaProblem& p, const Tensor& tensor, int64_t prefix, double value) {
  set_all(tensor.view().slice(0, prefix, p.sizes.tokens()), value);
}

TEST_CASE("later tokens, other or absent, change no bit of the prefix", "[kda]") {
  const Case c = any_case();
  const KdaSizes sizes{.lengths = {129}, .heads = 2, .key_dim = 20, .value_dim = 12};
  const KdaProblem whole = KdaProblem(sizes, c.tiles).in(c.dtype);
  const KdaProblem cut = whole.document(0, c.prefix, 0);
  const KdaResult wanted = run_chunkwise(cut);
  const KdaGradients wanted_gradients = run_backward(cut, prefix_loss(c, cut), {});

  SECTION("appended tokens") {
    for (const int64_t length : {c.prefix + 1, int64_t{129}}) {
      const KdaProblem longer = whole.document(0, length, 0);
      check_prefix_output(c, longer, wanted);
      check_prefix_gradients(c, longer, wanted_gradients);
    }
  }
  SECTION("other gates") {
    for (const double gate : {-5.0, 0.0, -0.3}) {
      set_future(whole, whole.g, c.prefix, gate);
      check_prefix_output(c, whole, wanted);
      check_prefix_gradients(c, whole, wanted_gradients);
    }
  }
  SECTION("other queries, keys, values and beta") {
    set_future(whole, whole.q, c.prefix, 0.2);
    set_future(whole, whole.k, c.prefix, -0.2);
    set_future(whole, whole.v, c.prefix, 1e6);
    set_future(whole, whole.beta, c.prefix, 1);
    check_prefix_output(c, whole, wanted);
    check_prefix_gradients(c, whole, wanted_gradients);
  }
  SECTION("a future that is not finite stays out of the past") {
    for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      for (const Tensor* tensor : {&whole.q, &whole.k, &whole.v, &whole.g, &whole.beta}) {
        set_future(whole, *tensor, c.prefix, value);
      }
      check_prefix_output(c, whole, wanted);
    }
  }
}

TEST_CASE("a document does not see the documents around it", "[kda]") {
  const Case c = any_case();
  const KdaSizes sizes{.lengths = {c.prefix, 70, 33}, .heads = 2, .key_dim = 20, .value_dim = 12};
  const KdaProblem p = KdaProblem(sizes, c.tiles).in(c.dtype);
  const KdaResult before = run_chunkwise(p);
  for (const Tensor* tensor : {&p.q, &p.k, &p.v, &p.g}) {
    set_all(tensor->view().slice(0, 0, c.prefix), -0.25);
    set_all(tensor->view().slice(0, c.prefix + 70, c.prefix + 103), std::numeric_limits<double>::quiet_NaN());
  }
  const KdaResult after = run_chunkwise(p);
  CHECK(bitwise_equal(rows_of(after.o, c.prefix, c.prefix + 70), rows_of(before.o, c.prefix, c.prefix + 70)));
  CHECK(bitwise_equal(rows_of(after.final_state, 1, 2), rows_of(before.final_state, 1, 2)));
}

// Scratch is reused from step to step; whatever it held, here NaN in every byte, must not show.
TEST_CASE("results do not depend on what scratch held", "[kda]") {
  const Case c = any_case();
  const KdaProblem p = KdaProblem({.lengths = {c.prefix, 90}}, c.tiles).in(c.dtype);
  ExecContext dirty({}, ExecContext::Mode::Execute, Arena({}, "scratch", int64_t{4} << 20));
  {
    const ArenaScope scope(dirty.scratch());
    std::memset(dirty.scratch().take_bytes("all", int64_t{4} << 20), 0xff, size_t{4} << 20);
  }
  const KdaResult clean = run_chunkwise(p);
  CHECK(bitwise_equal(run_chunkwise(p, dirty).o, clean.o));
  CHECK(bitwise_equal(run_chunkwise(p, dirty).final_state, clean.final_state));
  const KdaGradients clean_gradients = run_backward(p, p.v, {});
  const KdaGradients got = run_backward(p, p.v, {}, dirty);
  CHECK(bitwise_equal(got.dq, clean_gradients.dq));
  CHECK(bitwise_equal(got.dk, clean_gradients.dk));
  CHECK(bitwise_equal(got.dv, clean_gradients.dv));
  CHECK(bitwise_equal(got.dg, clean_gradients.dg));
  CHECK(bitwise_equal(got.dbeta, clean_gradients.dbeta));
  CHECK(bitwise_equal(got.dinitial_state, clean_gradients.dinitial_state));
}

TEST_CASE("two runs give the same bits", "[kda]") {
  const Case c = any_case();
  const KdaProblem p = KdaProblem({.lengths = {c.prefix, 90}}, c.tiles).in(c.dtype);
  CHECK(bitwise_equal(run_chunkwise(p).o, run_chunkwise(p).o));
  CHECK(bitwise_equal(run_backward(p, p.v, {}).dg, run_backward(p, p.v, {}).dg));
}

}  // namespace
}  // namespace longhaul
