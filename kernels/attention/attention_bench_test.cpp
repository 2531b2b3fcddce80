// Times of causal attention on one core and on a GPU, printed on demand: kernel_attention_test "[.bench]". No asserts.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <ctime>

#include "device/gpus.h"
#include "kernels/attention/attention_problem.h"
#include "tensor/host_copy.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

// Processor time, so that other work on the machine does not count.
template <class Fn>
double best_seconds(Fn&& fn) {
  double best = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const std::clock_t start = std::clock();
    fn();
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

void measure(int64_t tokens, int64_t key_dim, int64_t value_dim) {
  const AttentionProblem p({.lengths = {tokens}, .heads = 2, .key_dim = key_dim, .value_dim = value_dim}, DType::F32);
  const AttentionResult r = run(p);
  const Tensor dq = poisoned(DType::F32, p.q.view().shape()), dk = poisoned(DType::F32, p.q.view().shape());
  const Tensor dv = poisoned(DType::F32, p.v.view().shape());
  ExecContext ctx = ExecContext::cpu();
  const double forward = best_seconds([&] {
    attention_forward(
        ctx, {.q = p.q, .k = p.k, .v = p.v, .cu_seqlens = p.cu_seqlens, .scale = p.scale, .o = r.o, .lse = r.lse});
  });
  const double backward = best_seconds([&] {
    attention_backward(ctx, {.d_o = p.v, .q = p.q, .k = p.k, .v = p.v, .o = r.o, .lse = r.lse, .cu_seqlens = p.cu_seqlens,
                             .scale = p.scale, .dq = dq, .dk = dk, .dv = dv});
  });
  // Multiply-adds below the diagonal: two products forward, five backward.
  const double pairs = 0.5 * static_cast<double>(tokens) * static_cast<double>(tokens) * 2;
  const double forward_flops = 2 * pairs * static_cast<double>(key_dim + value_dim);
  const double backward_flops = 2 * pairs * static_cast<double>(3 * key_dim + 2 * value_dim);
  fmt::print("attention T={} H=2 K={} V={}: forward {:.2f} ms, {:.1f} GFLOP/s; backward {:.2f} ms, {:.1f} GFLOP/s\n", tokens,
             key_dim, value_dim, forward * 1e3, forward_flops / forward * 1e-9, backward * 1e3,
             backward_flops / backward * 1e-9);
}

TEST_CASE("attention timing", "[.bench]") {
  measure(2048, 48, 32);
  measure(2048, 192, 128);
}

// How far gradients move when the output that backward reads was rounded to bf16: delta = <d_o, o> is subtracted from values
// close to it. On the CPU in fp32, so that nothing else is rounded.
void measure_rounded_output(double stddev) {
  AttentionProblem p({.lengths = {1024}, .heads = 2, .key_dim = 192, .value_dim = 128}, DType::F32);
  p.q = random_tensor(DType::F32, p.q.view().shape(), "attention.q", stddev);
  p.k = random_tensor(DType::F32, p.k.view().shape(), "attention.k", stddev);
  // Values and gradients with a common part, as in a trained model.
  p.v = random_tensor(DType::F32, p.v.view().shape(), "attention.v", 1, 2);
  const Tensor d_o = random_tensor(DType::F32, p.v.view().shape(), "attention.d_o", 1, 0.5);
  const AttentionResult r = run(p);
  const Tensor rounded = AttentionProblem::rows(r.o, 0, p.sizes.tokens());
  for (float& x : rounded.values<float>()) {
    x = static_cast<float>(BFloat16(x));
  }
  const auto backward = [&](const TensorView& o) {
    AttentionGradients g{.dq = poisoned(DType::F32, p.q.view().shape()), .dk = poisoned(DType::F32, p.q.view().shape()),
                         .dv = poisoned(DType::F32, p.v.view().shape())};
    ExecContext ctx = ExecContext::cpu();
    attention_backward(ctx, {.d_o = d_o, .q = p.q, .k = p.k, .v = p.v, .o = o, .lse = r.lse, .cu_seqlens = p.cu_seqlens, .scale = p.scale,
                             .dq = g.dq, .dk = g.dk, .dv = g.dv});
    return g;
  };
  const AttentionGradients exact = backward(r.o), moved = backward(rounded);
  fmt::print("output rounded to bf16, q and k of size {}: dq moves by {:.2e}, dk by {:.2e}\n", stddev,
             difference(moved.dq, exact.dq).relative_l2, difference(moved.dk, exact.dk).relative_l2);
}

TEST_CASE("what a rounded output costs", "[.bench]") {
  measure_rounded_output(0.3);
  measure_rounded_output(1);
  measure_rounded_output(2);
}

constexpr Device kGpu{DeviceKind::Cuda, 0};

// Median over runs of several calls, which are enqueued together.
template <class Fn>
double gpu_seconds(CudaContext& cuda, int calls, Fn&& fn) {
  std::vector<double> times;
  for (int repeat = 0; repeat < 6; ++repeat) {
    cuda.stream().synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) {
      fn();
    }
    cuda.stream().synchronize();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls);
  }
  std::sort(times.begin() + 1, times.end());  // the first warms up
  return times[3];
}

void measure_on_gpu(DType dtype, const std::vector<int64_t>& lengths, int64_t heads, int64_t key_dim, int64_t value_dim, int calls) {
  const AttentionProblem p({.lengths = lengths, .heads = heads, .key_dim = key_dim, .value_dim = value_dim}, dtype);
  const auto output = [](DType type, const Shape& shape) { return copy_to(all_bits_set(type, shape), kGpu); };
  const Tensor q = copy_to(p.q, kGpu), k = copy_to(p.k, kGpu), v = copy_to(p.v, kGpu), cu_seqlens = copy_to(p.cu_seqlens, kGpu);
  const Tensor o = output(DType::F32, p.v.view().shape()), lse = output(DType::F32, {p.sizes.tokens(), heads});
  const Tensor dq = output(dtype, p.q.view().shape()), dk = output(dtype, p.q.view().shape()), dv = output(dtype, p.v.view().shape());
  CudaContext cuda(kGpu);
  ExecContext ctx(kGpu, ExecContext::Mode::Execute, Arena(kGpu, "scratch", 0, Arena::Growth::Chunked), &cuda);
  const double forward = gpu_seconds(cuda, calls, [&] {
    attention_forward(ctx, {.q = q, .k = k, .v = v, .cu_seqlens = cu_seqlens, .scale = p.scale, .o = o, .lse = lse});
  });
  const double backward = gpu_seconds(cuda, calls, [&] {
    attention_backward(ctx, {.d_o = v, .q = q, .k = k, .v = v, .o = o, .lse = lse, .cu_seqlens = cu_seqlens, .scale = p.scale, .dq = dq,
                             .dk = dk, .dv = dv});
  });
  double pairs = 0;
  for (const int64_t length : lengths) {
    pairs += 0.5 * static_cast<double>(heads) * static_cast<double>(length) * static_cast<double>(length);
  }
  const double forward_flops = 2 * pairs * static_cast<double>(key_dim + value_dim);
  const double backward_flops = 2 * pairs * static_cast<double>(3 * key_dim + 2 * value_dim);
  fmt::print("attention {} T={} in {} documents H={} K={} V={}: "
             "forward {:.3f} ms, {:.1f} TFLOP/s; backward {:.3f} ms, {:.1f} TFLOP/s; both {:.1f}\n",
             to_string(dtype), p.sizes.tokens(), lengths.size(), heads, key_dim, value_dim, forward * 1e3, forward_flops / forward * 1e-12,
             backward * 1e3, backward_flops / backward * 1e-12, (forward_flops + backward_flops) / (forward + backward) * 1e-12);
}

TEST_CASE("attention timing on the GPU", "[.bench][.gpu_bench]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  measure_on_gpu(DType::F32, {2048}, 2, 192, 128, 2);
  measure_on_gpu(DType::F32, {2048}, 8, 128, 128, 2);
  measure_on_gpu(DType::BF16, {8192}, 8, 192, 128, 10);
  measure_on_gpu(DType::BF16, {8192}, 8, 128, 128, 10);
  measure_on_gpu(DType::BF16, {8192}, 8, 64, 64, 10);
  measure_on_gpu(DType::BF16, std::vector<int64_t>(16, 512), 8, 192, 128, 10);
  measure_on_gpu(DType::BF16, {32768}, 2, 192, 128, 3);
}

}  // namespace
}  // namespace longhaul
