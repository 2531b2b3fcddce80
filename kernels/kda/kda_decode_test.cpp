// Decoding against the recurrence, which it must equal to the last bit on the CPU, and against a prefill that it continues; on a GPU
// against the CPU, and after a prefill there.
#include <catch2/generators/catch_generators.hpp>

#include "kernels/gpu_test.h"
#include "kernels/kda/kda_decode.h"
#include "kernels/kda/kda_problem.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

// Token `t` of each document of a problem whose documents have one length: [documents, heads, ...].
Tensor tokens_at(const Tensor& tensor, int64_t documents, int64_t length, int64_t t, DType dtype) {
  const TensorView& view = tensor.view();
  const Shape shape = view.rank() == 3 ? Shape{documents, view.size(1), view.size(2)} : Shape{documents, view.size(1)};
  Tensor to(dtype, shape);
  for (int64_t d = 0; d < documents; ++d) {
    const Tensor row = converted(view.slice(0, d * length + t, d * length + t + 1), dtype);
    copy_between(row, to.view().slice(0, d, d + 1));
  }
  return to;
}

// Decodes tokens [begin, length) of every document from `state` and returns their outputs, [tokens, heads, value_dim] with rows of
// earlier tokens left NaN.
Tensor decode_all(const KdaProblem& p, int64_t begin, const Tensor& state) {
  const DType dtype = p.q.view().dtype();
  const int64_t documents = p.sizes.documents(), length = p.sizes.lengths[0];
  Tensor all = poisoned(dtype, p.v.view().shape());
  ExecContext ctx = ExecContext::cpu();
  for (int64_t t = begin; t < length; ++t) {
    const auto at = [&](const Tensor& tensor) { return tokens_at(tensor, documents, length, t, dtype); };
    const Tensor q = at(p.q), k = at(p.k), v = at(p.v), g = at(p.g), beta = at(p.beta), o = poisoned(dtype, v.view().shape());
    kda_decode(ctx, {.q = q, .k = k, .v = v, .g = g, .beta = beta, .scale = p.scale, .state = state, .o = o});
    for (int64_t d = 0; d < documents; ++d) {
      copy_between(o.view().slice(0, d, d + 1), all.view().slice(0, d * length + t, d * length + t + 1));
    }
  }
  return all;
}

TEST_CASE("decoding every token is the recurrence, bit for bit", "[kda]") {
  const DType dtype = GENERATE(DType::F32, DType::F64);
  const auto [key_dim, value_dim] = GENERATE(std::pair<int64_t, int64_t>{16, 16}, std::pair<int64_t, int64_t>{5, 19});
  const KdaProblem p = KdaProblem({.lengths = {20, 20, 20}, .key_dim = key_dim, .value_dim = value_dim}).in(dtype);
  const Tensor state = converted(p.initial_state, dtype);
  const Tensor o = decode_all(p, 0, state);
  const KdaResult wanted = run_recurrent(p);
  CHECK(bitwise_equal(o, wanted.o));
  CHECK(bitwise_equal(state, wanted.final_state));
}

TEST_CASE("decoding continues a prefill", "[kda]") {
  const int64_t prompt = GENERATE(1, 64, 77);
  const KdaTiles tiles = GENERATE(KdaTiles::Dense, KdaTiles::Pairwise);
  const KdaProblem p({.lengths = {90}, .key_dim = 32, .value_dim = 24}, tiles);
  if (tiles == KdaTiles::Pairwise) {
    for (double& g : p.g.values<double>()) {
      g *= 12;
    }
  }
  const KdaResult prefill = run_chunkwise(p.document(0, prompt, 0)), whole = run_chunkwise(p);
  const Tensor o = decode_all(p, prompt, prefill.final_state);
  CHECK(difference(rows_of(o, prompt, 90), rows_of(whole.o, prompt, 90)).within(1e-12));
  CHECK(difference(prefill.final_state, whole.final_state).within(1e-12));
}

TEST_CASE("decoding names a wrong argument", "[kda]") {
  const KdaProblem p({.lengths = {3}});
  const Tensor o = poisoned(DType::F64, p.v.view().shape());
  const Tensor two = Tensor::zeros(DType::F64, {2, 2, 16, 16}), three = Tensor::zeros(DType::F64, {3, 2, 16, 16});
  ExecContext ctx = ExecContext::cpu();
  KdaDecode op{.q = p.q, .k = p.k, .v = p.v, .g = p.g, .beta = p.beta, .state = two, .o = o};
  CHECK_THROWS_AS(kda_decode(ctx, op), ShapeError);
  op.state = three;
  CHECK_NOTHROW(kda_decode(ctx, op));
  op.g = TensorView();
  CHECK_THROWS_AS(kda_decode(ctx, op), ShapeError);
}

TEST_CASE("decoding on the GPU equals the CPU", "[kda][cuda]") {
  for (const DType dtype : kGpuTypes) {
    const std::pair<int64_t, int64_t> widths[] = {{8, 8}, {64, 64}, {128, 128}, {40, 24}, {256, 72}, {256, 256}, {8, 136}};
    for (const auto& [key_dim, value_dim] : widths) {
      for (const double gate : {-0.5, -60.0}) {
        Parity parity("kda_decode", dtype);
        const Shape keys{5, 3, key_dim}, values{5, 3, value_dim};
        const double unit = 1 / std::sqrt(static_cast<double>(key_dim));
        const Twin &q = parity.random("q", keys, unit), &k = parity.random("k", keys, unit), &v = parity.random("v", values);
        const Twin &g = parity.random_accurate("g", keys, 0.1, gate), &beta = parity.random_accurate("beta", {5, 3}, 0.1, 0.5);
        const Twin &state = parity.random_accurate("state", {5, 3, key_dim, value_dim}), &o = parity.output("o", values);
        parity.run([&](ExecContext& ctx, const Parity::Side& side) {
          kda_decode(ctx, {.q = side(q), .k = side(k), .v = side(v), .g = side(g), .beta = side(beta), .scale = unit, .state = side(state),
                           .o = side(o)});
        });
        parity.check(state, kFloatBound, kFloatBound);
        parity.check(o, kFloatBound, kRoundedBound);
      }
    }
  }
}

TEST_CASE("decoding on the GPU continues a prefill there", "[kda][cuda]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  const int64_t length = 150, prompt = 100, dim = 128;  // in bf16 served by the tensor cores of a Hopper GPU
  const DType dtype = GENERATE(DType::F32, DType::BF16);
  const KdaProblem p = KdaProblem({.lengths = {length}, .heads = 3, .key_dim = dim, .value_dim = dim}).in(DType::F32);
  ExecContext ctx = ExecContext::cuda(kGpu);
  const auto on_gpu = [&](const Tensor& tensor, int64_t begin, int64_t end, DType to) {
    const std::vector<double> values = to_doubles(tensor.view().slice(0, begin, end));
    Tensor host(to, tensor.view().slice(0, begin, end).shape());
    for (size_t i = 0; i < values.size(); ++i) {
      if (to == DType::BF16) {
        host.values<BFloat16>()[i] = BFloat16(static_cast<float>(values[i]));
      } else {
        host.values<float>()[i] = static_cast<float>(values[i]);
      }
    }
    return copy_to(host, kGpu);
  };
  const auto prefill = [&](int64_t tokens, const Tensor& o, const Tensor& final_state) {
    const Tensor q = on_gpu(p.q, 0, tokens, dtype), k = on_gpu(p.k, 0, tokens, dtype), v = on_gpu(p.v, 0, tokens, dtype);
    const Tensor g = on_gpu(p.g, 0, tokens, DType::F32), beta = on_gpu(p.beta, 0, tokens, DType::F32);
    const Tensor initial = copy_to(p.initial_state, kGpu), cu_seqlens = copy_to(cu_seqlens_of({tokens}), kGpu);
    kda_forward(ctx, {.q = q, .k = k, .v = v, .g = g, .beta = beta, .cu_seqlens = cu_seqlens, .scale = p.scale, .initial_state = initial,
                      .o = o, .final_state = final_state});
    ctx.cuda_context().stream().synchronize();
  };
  const Shape states{1, 3, dim, dim};
  const Tensor whole_o(dtype, {length, 3, dim}, kGpu), whole_state(DType::F32, states, kGpu);
  prefill(length, whole_o, whole_state);
  const Tensor prompt_o(dtype, {prompt, 3, dim}, kGpu), state(DType::F32, states, kGpu), o(dtype, {length - prompt, 3, dim}, kGpu);
  prefill(prompt, prompt_o, state);
  for (int64_t t = prompt; t < length; ++t) {
    const Tensor q = on_gpu(p.q, t, t + 1, dtype), k = on_gpu(p.k, t, t + 1, dtype), v = on_gpu(p.v, t, t + 1, dtype);
    const Tensor g = on_gpu(p.g, t, t + 1, DType::F32), beta = on_gpu(p.beta, t, t + 1, DType::F32);
    kda_decode(ctx, {.q = q, .k = k, .v = v, .g = g, .beta = beta, .scale = p.scale, .state = state,
                     .o = o.view().slice(0, t - prompt, t - prompt + 1)});
    ctx.cuda_context().stream().synchronize();
  }
  const Tensor got = copy_to(o, Device{}), wanted = copy_to(whole_o.view().slice(0, prompt, length), Device{});
  const Tensor got_state = copy_to(state, Device{}), wanted_state = copy_to(whole_state, Device{});
  const Difference outputs = difference(got, wanted), final_states = difference(got_state, wanted_state);
  INFO(outputs.text << "; state " << final_states.text);
  CHECK(outputs.within(dtype == DType::F32 ? 2e-5 : 5e-3));
  CHECK(final_states.within(dtype == DType::F32 ? 2e-5 : 5e-3));
}

}  // namespace
}  // namespace longhaul
