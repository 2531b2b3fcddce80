// Causal attention against its definition, finite differences, packing, and bitwise causality.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "kernels/attention/attention_problem.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

void check_against_definition(const AttentionProblem& p, double tolerance) {
  const AttentionResult got = run(p);
  const AttentionResult wanted = run_naive(p);
  const Difference o = difference(got.o, wanted.o);
  const Difference lse = difference(got.lse, wanted.lse);
  INFO(o.text);
  INFO(lse.text);
  CHECK(o.within(tolerance));
  CHECK(lse.within(tolerance));
}

TEST_CASE("forward equals the definition at every length", "[attention]") {
  const int64_t length = GENERATE(1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 200);
  const AttentionSizes sizes{.lengths = {length}, .heads = 3, .key_dim = 24, .value_dim = 16};
  check_against_definition(AttentionProblem(sizes), 1e-13);
  check_against_definition(AttentionProblem(sizes, DType::F32), 1e-6);
}

TEST_CASE("widths that are no multiple of a vector, and packed documents", "[attention]") {
  const auto [key_dim, value_dim] = GENERATE(std::pair<int64_t, int64_t>{1, 1}, std::pair<int64_t, int64_t>{5, 19},
                                             std::pair<int64_t, int64_t>{48, 32});
  check_against_definition(
      AttentionProblem({.lengths = {70, 0, 1, 130, 0}, .heads = 2, .key_dim = key_dim, .value_dim = value_dim}), 1e-13);
}

TEST_CASE("no tokens", "[attention]") {
  const auto lengths = GENERATE(std::vector<int64_t>{}, std::vector<int64_t>{0}, std::vector<int64_t>{0, 0});
  const AttentionProblem p({.lengths = lengths});
  CHECK(run(p).o.view().numel() == 0);
  CHECK(run_backward(p, p.v).dq.view().numel() == 0);
}

// Scores of +-1e4: exp overflows unless the largest score is taken off first, in every tile.
TEST_CASE("large scores neither overflow nor lose the answer", "[attention]") {
  AttentionProblem p({.lengths = {150}, .key_dim = 4});
  p.scale = 3000;
  check_against_definition(p, 1e-11);
  for (const double x : to_doubles(run(p).o)) {
    REQUIRE(std::isfinite(x));
  }
}

TEST_CASE("gradients equal finite differences", "[attention]") {
  const auto lengths = GENERATE(std::vector<int64_t>{1}, std::vector<int64_t>{2}, std::vector<int64_t>{64},
                                std::vector<int64_t>{65}, std::vector<int64_t>{30, 0, 129, 1});
  const AttentionProblem p({.lengths = lengths, .heads = 2, .key_dim = 5, .value_dim = 3});
  const Tensor d_o = random_tensor(DType::F64, p.v.view().shape(), "attention.d_o");
  const AttentionGradients grad = run_backward(p, d_o);
  const auto loss = [&] { return dot(d_o, run_naive(p).o); };
  CHECK(gradient_error(p.q, grad.dq, loss) < 1e-8);
  CHECK(gradient_error(p.k, grad.dk, loss) < 1e-8);
  CHECK(gradient_error(p.v, grad.dv, loss) < 1e-8);
}

TEST_CASE("float gradients are close to double", "[attention]") {
  const AttentionSizes sizes{.lengths = {200, 64}, .heads = 2, .key_dim = 48, .value_dim = 32};
  const AttentionProblem p(sizes);
  const AttentionProblem p32(sizes, DType::F32);
  const Tensor d_o = random_tensor(DType::F64, p.v.view().shape(), "attention.d_o");
  const AttentionGradients wanted = run_backward(p, d_o);
  const AttentionGradients got = run_backward(p32, converted(d_o, DType::F32));
  CHECK(difference(got.dq, wanted.dq).within(2e-6));
  CHECK(difference(got.dk, wanted.dk).within(2e-6));
  CHECK(difference(got.dv, wanted.dv).within(2e-6));
}

TEST_CASE("packed documents are bitwise the documents alone", "[attention]") {
  const DType dtype = GENERATE(DType::F32, DType::F64);
  const std::vector<int64_t> lengths = {65, 1, 17, 0, 64, 140};
  const AttentionProblem p({.lengths = lengths, .key_dim = 24}, dtype);
  const Tensor d_o = random_tensor(dtype, p.v.view().shape(), "attention.d_o");
  const AttentionResult packed = run(p);
  const AttentionGradients packed_grad = run_backward(p, d_o);
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    const int64_t end = begin + length;
    const AttentionProblem alone = p.document(begin, length);
    const AttentionGradients grad = run_backward(alone, AttentionProblem::rows(d_o, begin, end));
    CHECK(bitwise_equal(AttentionProblem::rows(packed.o, begin, end), run(alone).o));
    CHECK(bitwise_equal(AttentionProblem::rows(packed.lse, begin, end), run(alone).lse));
    CHECK(bitwise_equal(AttentionProblem::rows(packed_grad.dq, begin, end), grad.dq));
    CHECK(bitwise_equal(AttentionProblem::rows(packed_grad.dk, begin, end), grad.dk));
    CHECK(bitwise_equal(AttentionProblem::rows(packed_grad.dv, begin, end), grad.dv));
    begin = end;
  }
}

// What comes after a token, or whether anything comes, changes no bit of its output and of the gradients of a loss on
// the prefix. For outputs the future may even be infinite or NaN.
TEST_CASE("a prefix does not depend on its future, bitwise", "[attention]") {
  const DType dtype = GENERATE(DType::F32, DType::F64);
  const int64_t prefix = GENERATE(1, 7, 8, 15, 16, 17, 63, 64, 65);
  const int64_t total = GENERATE(66, 129);
  const AttentionProblem whole({.lengths = {total}, .key_dim = 24, .value_dim = 8}, dtype);
  const AttentionProblem cut = whole.document(0, prefix);
  const Tensor d_cut = random_tensor(dtype, cut.v.view().shape(), "attention.d_o");
  const Tensor d_whole = Tensor::zeros(dtype, whole.v.view().shape());
  if (prefix > 0) {
    std::memcpy(d_whole.view().raw(), d_cut.view().raw(), static_cast<size_t>(d_cut.view().bytes()));
  }
  const AttentionResult wanted = run(cut);
  const AttentionGradients wanted_grad = run_backward(cut, d_cut);
  const auto check_output = [&] {
    const AttentionResult got = run(whole);
    CHECK(bitwise_equal(AttentionProblem::rows(got.o, 0, prefix), wanted.o));
    CHECK(bitwise_equal(AttentionProblem::rows(got.lse, 0, prefix), wanted.lse));
  };
  const auto check_gradients = [&] {
    const AttentionGradients got = run_backward(whole, d_whole);
    CHECK(bitwise_equal(AttentionProblem::rows(got.dq, 0, prefix), wanted_grad.dq));
    CHECK(bitwise_equal(AttentionProblem::rows(got.dk, 0, prefix), wanted_grad.dk));
    CHECK(bitwise_equal(AttentionProblem::rows(got.dv, 0, prefix), wanted_grad.dv));
  };
  check_output();
  check_gradients();
  const auto set_future = [&](double value) {
    for (const Tensor* tensor : {&whole.q, &whole.k, &whole.v}) {
      set_all(tensor->view().slice(0, prefix, total), value);
    }
  };
  set_future(-30);
  check_output();
  check_gradients();
  for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    set_future(value);
    check_output();
  }
}

// q, k and v as slices of one projection, gradients as slices of one gradient: nothing beside them is read or written.
TEST_CASE("strided inputs and gradients", "[attention]") {
  const AttentionProblem p({.lengths = {70, 20}, .heads = 2, .key_dim = 12, .value_dim = 8});
  const Tensor d_o = random_tensor(DType::F64, p.v.view().shape(), "attention.d_o");
  const int64_t tokens = p.sizes.tokens();
  const Tensor packed = poisoned(DType::F64, {tokens, 2, 12 + 12 + 8 + 3});
  const TensorView q = packed.view().slice(2, 0, 12), k = packed.view().slice(2, 12, 24), v = packed.view().slice(2, 24, 32);
  const auto copy = [&](const Tensor& from, const TensorView& to) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < 2; ++h) {
        std::memcpy(to[t][h].raw(), from.view()[t][h].raw(), static_cast<size_t>(from.view()[t][h].bytes()));
      }
    }
  };
  copy(p.q, q);
  copy(p.k, k);
  copy(p.v, v);
  const Tensor o = poisoned(DType::F64, p.v.view().shape());
  const Tensor lse = poisoned(DType::F64, {tokens, 2});
  const Tensor grad = poisoned(DType::F64, packed.view().shape());
  ExecContext ctx = ExecContext::cpu();
  attention_forward(ctx, {.q = q, .k = k, .v = v, .cu_seqlens = p.cu_seqlens, .scale = p.scale, .o = o, .lse = lse});
  const TensorView dq = grad.view().slice(2, 0, 12), dk = grad.view().slice(2, 12, 24), dv = grad.view().slice(2, 24, 32);
  attention_backward(ctx, {.d_o = d_o,
                           .q = q,
                           .k = k,
                           .v = v,
                           .o = o,
                           .lse = lse,
                           .cu_seqlens = p.cu_seqlens,
                           .scale = p.scale,
                           .dq = dq,
                           .dk = dk,
                           .dv = dv});
  const AttentionGradients wanted = run_backward(p, d_o);
  CHECK(difference(o, run(p).o).max_abs == 0);
  CHECK(difference(dq, wanted.dq).max_abs == 0);
  CHECK(difference(dk, wanted.dk).max_abs == 0);
  CHECK(difference(dv, wanted.dv).max_abs == 0);
  for (const double beside : to_doubles(grad.view().slice(2, 32, 35))) {
    CHECK(std::isnan(beside));
  }
}

TEST_CASE("scratch does not grow with the sequence, and planning knows it", "[attention]") {
  const auto planned_bytes = [](int64_t tokens) {
    ExecContext ctx = ExecContext::plan({});
    const TensorView x = planned(DType::F32, {tokens, 2, 32});
    const TensorView lse = planned(DType::F32, {tokens, 2});
    const TensorView cu_seqlens = planned(DType::I64, {3});
    attention_forward(ctx, {.q = x, .k = x, .v = x, .cu_seqlens = cu_seqlens, .o = x, .lse = lse});
    attention_backward(ctx, {.d_o = x, .q = x, .k = x, .v = x, .o = x, .lse = lse, .cu_seqlens = cu_seqlens, .dq = x, .dk = x, .dv = x});
    return ctx.scratch().high_water_bytes();
  };
  CHECK(planned_bytes(64) > 0);
  CHECK(planned_bytes(64) == planned_bytes(int64_t{1} << 24));
}

// Scratch is reused from step to step; whatever it held, here NaN in every byte, must not show.
TEST_CASE("results do not depend on what scratch held", "[attention]") {
  const DType dtype = GENERATE(DType::F32, DType::F64);
  const AttentionProblem p({.lengths = {17, 100}, .key_dim = 20, .value_dim = 12}, dtype);
  ExecContext dirty({}, ExecContext::Mode::Execute, Arena({}, "scratch", int64_t{1} << 20));
  {
    const ArenaScope scope(dirty.scratch());
    std::memset(dirty.scratch().take_bytes("all", int64_t{1} << 20), 0xff, size_t{1} << 20);
  }
  CHECK(bitwise_equal(run(p, dirty).o, run(p).o));
  CHECK(bitwise_equal(run(p, dirty).lse, run(p).lse));
  const AttentionGradients got = run_backward(p, p.v, dirty);
  const AttentionGradients wanted = run_backward(p, p.v);
  CHECK(bitwise_equal(got.dq, wanted.dq));
  CHECK(bitwise_equal(got.dk, wanted.dk));
  CHECK(bitwise_equal(got.dv, wanted.dv));
}

TEST_CASE("wrong arguments are named", "[attention]") {
  const AttentionProblem p({.lengths = {4}});
  const TensorView lse = planned(DType::F64, {4, 2});
  const auto good = [&] {
    return AttentionForward{.q = p.q, .k = p.k, .v = p.v, .cu_seqlens = p.cu_seqlens, .o = p.v, .lse = lse};
  };
  ExecContext ctx = ExecContext::plan({});
  check_shape_error("k", [&] {
    AttentionForward op = good();
    op.k = planned(DType::F64, {4, 2, 8});
    attention_forward(ctx, op);
  });
  check_shape_error("lse", [&] {
    AttentionForward op = good();
    op.lse = planned(DType::F32, {4, 2});
    attention_forward(ctx, op);
  });
  check_shape_error("cu_seqlens", [&] {
    AttentionForward op = good();
    const Tensor bounds = cu_seqlens_of({5});
    op.cu_seqlens = bounds;
    ExecContext run = ExecContext::cpu();
    attention_forward(run, op);
  });
}

}  // namespace
}  // namespace longhaul
