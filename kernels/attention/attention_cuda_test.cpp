// The GPU against the CPU: ragged documents, widths that differ, strided rows, large scores; and a document alone against the
// same document packed, to the last bit.
#include "kernels/attention/attention_problem.h"
#include "kernels/gpu_test.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

struct Bounds {
  double f32, bf16;
};
// The inputs are the same on both sides; in bf16 the products' operands P and dS and the gradients are rounded.
constexpr Bounds kUsual{1e-5, 1e-2};

struct GpuCase {
  AttentionSizes sizes;
  double stddev = 1;          // of q and k
  DType gradient = DType::F32;  // of d_o: F32, or BF16 where the compute type is
  Bounds bounds = kUsual;
};

std::string name_of(const GpuCase& c) {
  return fmt::format("attention {}x{}/{}/{}", c.sizes.tokens(), c.sizes.heads, c.sizes.key_dim, c.sizes.value_dim);
}

void check_parity(const GpuCase& c, DType dtype) {
  Parity p(name_of(c), dtype);
  const AttentionSizes& sizes = c.sizes;
  const int64_t tokens = sizes.tokens();
  const Shape keys{tokens, sizes.heads, sizes.key_dim}, values{tokens, sizes.heads, sizes.value_dim};
  Twin &q = p.random("q", keys, c.stddev), &k = p.random("k", keys, c.stddev), &v = p.random("v", values);
  Twin& d_o = c.gradient == DType::F32 ? p.random_accurate("d_o", values) : p.random("d_o", values);
  std::vector<int64_t> bounds{0};
  for (const int64_t length : sizes.lengths) {
    bounds.push_back(bounds.back() + length);
  }
  Twin& cu_seqlens = p.integers("cu_seqlens", bounds, {static_cast<int64_t>(bounds.size())});
  Twin &o = p.output_accurate("o", values), &lse = p.output_accurate("lse", {tokens, sizes.heads});
  Twin &dq = p.output("dq", keys), &dk = p.output("dk", keys), &dv = p.output("dv", values);
  const double scale = 1 / std::sqrt(static_cast<double>(sizes.key_dim));
  p.run([&](ExecContext& ctx, const Parity::Side& on) {
    attention_forward(ctx, {.q = on(q), .k = on(k), .v = on(v), .cu_seqlens = on(cu_seqlens), .scale = scale, .o = on(o), .lse = on(lse)});
    attention_backward(ctx, {.d_o = on(d_o), .q = on(q), .k = on(k), .v = on(v), .o = on(o), .lse = on(lse), .cu_seqlens = on(cu_seqlens),
                             .scale = scale, .dq = on(dq), .dk = on(dk), .dv = on(dv)});
  });
  p.check(o, c.bounds.f32, c.bounds.bf16);
  p.check(lse, 1e-5, 1e-3);
  p.check(dq, c.bounds.f32, c.bounds.bf16);
  p.check(dk, c.bounds.f32, c.bounds.bf16);
  p.check(dv, c.bounds.f32, c.bounds.bf16);
}

TEST_CASE("attention on the GPU equals the CPU", "[attention][cuda]") {
  const std::vector<int64_t> ragged = {70, 0, 1, 130, 0, 64, 2};
  const std::vector<GpuCase> cases = {
      {.sizes = {.lengths = ragged, .heads = 2, .key_dim = 24, .value_dim = 16}},
      {.sizes = {.lengths = ragged, .heads = 3, .key_dim = 48, .value_dim = 32}},
      {.sizes = {.lengths = {300, 65}, .heads = 2, .key_dim = 64, .value_dim = 64}, .gradient = DType::BF16},
      {.sizes = {.lengths = {129, 127}, .heads = 2, .key_dim = 128, .value_dim = 128}},
      {.sizes = {.lengths = {500, 1, 0, 200}, .heads = 2, .key_dim = 192, .value_dim = 128}},
      {.sizes = {.lengths = {500, 1, 0, 200}, .heads = 2, .key_dim = 192, .value_dim = 128}, .gradient = DType::BF16},
      {.sizes = {.lengths = {300, 5}, .heads = 17, .key_dim = 16, .value_dim = 16}},  // more heads than run side by side
      {.sizes = {.lengths = {100}, .heads = 1, .key_dim = 256, .value_dim = 256}},
      {.sizes = {.lengths = {90}, .heads = 1, .key_dim = 32, .value_dim = 200}},
      {.sizes = {.lengths = {40, 33}, .heads = 2, .key_dim = 5, .value_dim = 19}},
  };
  for (const GpuCase& c : cases) {
    for (const DType dtype : kGpuTypes) {
      check_parity(c, dtype);
    }
  }
}

TEST_CASE("attention on the GPU: no tokens, and more documents than a block has threads", "[attention][cuda]") {
  std::vector<int64_t> many(2500);
  for (size_t i = 0; i < many.size(); ++i) {
    many[i] = static_cast<int64_t>(i % 4);
  }
  for (const DType dtype : kGpuTypes) {
    check_parity({.sizes = {.lengths = many, .heads = 1, .key_dim = 16, .value_dim = 16}}, dtype);
    check_parity({.sizes = {.lengths = {0, 0}, .heads = 1, .key_dim = 64, .value_dim = 64}}, dtype);
  }
}

// Scores of hundreds, where one key takes nearly all: exp overflows unless the largest score is taken off first. Rounding of a
// score is a relative error of P, hence the looser bounds.
TEST_CASE("attention on the GPU: large scores", "[attention][cuda]") {
  for (const DType dtype : kGpuTypes) {
    const AttentionSizes sizes{.lengths = {200, 90}, .heads = 2, .key_dim = 64, .value_dim = 32};
    check_parity({.sizes = sizes, .stddev = 16, .bounds = {1e-4, 2e-2}}, dtype);
  }
}

// One side of a problem on the GPU: tensors there, results copied back.
struct OnGpu {
  Tensor q, k, v, cu_seqlens, d_o, o, lse, dq, dk, dv;

  OnGpu(const AttentionProblem& p, const TensorView& gradient)
      : q(copy_to(p.q, kGpu)),
        k(copy_to(p.k, kGpu)),
        v(copy_to(p.v, kGpu)),
        cu_seqlens(copy_to(p.cu_seqlens, kGpu)),
        d_o(copy_to(gradient, kGpu)),
        o(output(DType::F32, p.v.view().shape())),
        lse(output(DType::F32, {p.sizes.tokens(), p.sizes.heads})),
        dq(output(p.q.view().dtype(), p.q.view().shape())),
        dk(output(p.q.view().dtype(), p.q.view().shape())),
        dv(output(p.q.view().dtype(), p.v.view().shape())) {
    ExecContext ctx = ExecContext::cuda(kGpu);
    attention_forward(ctx, {.q = q, .k = k, .v = v, .cu_seqlens = cu_seqlens, .scale = p.scale, .o = o, .lse = lse});
    attention_backward(ctx, {.d_o = d_o, .q = q, .k = k, .v = v, .o = o, .lse = lse, .cu_seqlens = cu_seqlens, .scale = p.scale,
                             .dq = dq, .dk = dk, .dv = dv});
    ctx.cuda_context().stream().synchronize();
  }
  static Tensor output(DType dtype, const Shape& shape) { return copy_to(all_bits_set(dtype, shape), kGpu); }
};

TEST_CASE("packed documents are bitwise the documents alone on the GPU", "[attention][cuda]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  for (const DType dtype : kGpuTypes) {
    const std::vector<int64_t> lengths = {65, 1, 17, 0, 64, 140, 300};
    const AttentionProblem p({.lengths = lengths, .key_dim = 192, .value_dim = 128}, dtype);
    const Tensor d_o = random_tensor(DType::F32, p.v.view().shape(), "attention.d_o");
    const OnGpu packed(p, d_o);
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      const int64_t end = begin + length;
      const OnGpu alone(p.document(begin, length), AttentionProblem::rows(d_o, begin, end));
      const auto same = [&](const Tensor& whole, const Tensor& part) {
        return bitwise_equal(AttentionProblem::rows(copy_to(whole, Device{}), begin, end), copy_to(part, Device{}));
      };
      INFO(to_string(dtype) << ", tokens from " << begin);
      CHECK(same(packed.o, alone.o));
      CHECK(same(packed.lse, alone.lse));
      CHECK(same(packed.dq, alone.dq));
      CHECK(same(packed.dk, alone.dk));
      CHECK(same(packed.dv, alone.dv));
      begin = end;
    }
  }
}

// q, k and v as columns of one projection, gradients as columns of one gradient; what lies beside them stays NaN.
TEST_CASE("attention on the GPU: strided inputs and gradients", "[attention][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const int64_t margin : {8, 3}) {  // rows aligned for wide loads, and not
      Parity p(fmt::format("attention strided {}", margin), dtype);
      const Shape wide{150, 2, 24 + margin}, values{150, 2, 16};
      Twin &q = p.random("q", wide), &k = p.random("k", wide), &v = p.random("v", {150, 2, 16 + margin});
      Twin &d_o = p.random_accurate("d_o", values), &o = p.output_accurate("o", values), &lse = p.output_accurate("lse", {150, 2});
      Twin &dq = p.output("dq", wide), &dk = p.output("dk", wide), &dv = p.output("dv", {150, 2, 16 + margin});
      Twin& cu_seqlens = p.integers("cu_seqlens", std::vector<int64_t>{0, 100, 150}, {3});
      for (Twin* twin : {&q, &k, &dq, &dk}) {
        Parity::narrow_to(*twin, margin, 24);
      }
      Parity::narrow_to(v, 0, 16);
      Parity::narrow_to(dv, margin, 16);
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        attention_forward(ctx, {.q = on(q), .k = on(k), .v = on(v), .cu_seqlens = on(cu_seqlens), .scale = 0.2, .o = on(o),
                                .lse = on(lse)});
        attention_backward(ctx, {.d_o = on(d_o), .q = on(q), .k = on(k), .v = on(v), .o = on(o), .lse = on(lse),
                                 .cu_seqlens = on(cu_seqlens), .scale = 0.2, .dq = on(dq), .dk = on(dk), .dv = on(dv)});
      });
      p.check(o, kUsual.f32, kUsual.bf16);
      p.check(dq, kUsual.f32, kUsual.bf16);
      p.check(dk, kUsual.f32, kUsual.bf16);
      p.check(dv, kUsual.f32, kUsual.bf16);
    }
  }
}

TEST_CASE("planning attention for a GPU needs none, and counts delta", "[attention]") {
  const auto planned_bytes = [](int64_t tokens) {
    ExecContext ctx = ExecContext::plan(kGpu);
    const TensorView x = planned(DType::BF16, {tokens, 2, 32}), o = planned(DType::F32, {tokens, 2, 32});
    const TensorView lse = planned(DType::F32, {tokens, 2}), cu_seqlens = planned(DType::I64, {3});
    attention_forward(ctx, {.q = x, .k = x, .v = x, .cu_seqlens = cu_seqlens, .o = o, .lse = lse});
    attention_backward(ctx, {.d_o = x, .q = x, .k = x, .v = x, .o = o, .lse = lse, .cu_seqlens = cu_seqlens, .dq = x, .dk = x, .dv = x});
    return ctx.scratch().high_water_bytes();
  };
  CHECK(planned_bytes(1 << 20) - planned_bytes(1 << 19) == (1 << 19) * 2 * 4);
}

}  // namespace
}  // namespace longhaul
