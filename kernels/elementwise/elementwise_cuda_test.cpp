// The GPU against the CPU: conversions, strided copies, sums, and random initialisation to the last bit.
#include "kernels/elementwise/elementwise.h"

#include "kernels/gpu_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("elementwise operations on the GPU equal the CPU", "[elementwise][cuda]") {
  for (const DType dtype : kGpuTypes) {
    for (const int64_t n : {100003, 64, 0}) {
      Parity p(fmt::format("elementwise {}", n), dtype);
      Twin &x = p.random("x", {n}), &exact = p.random_accurate("exact", {n}), &sum = p.random_accurate("sum", {n}), &narrowed = p.output("narrowed", {n});
      Twin &scaled = p.random("scaled", {n}), &filled = p.output("filled", {n}), &zeroed = p.output("zeroed", {n});
      Twin& squares = p.integers("squares", std::vector<double>{3}, {1});
      p.run([&](ExecContext& ctx, const Parity::Side& on) {
        add(ctx, on(x), on(sum));
        copy(ctx, on(exact), on(narrowed));
        scale(ctx, on(scaled), -0.37);
        fill(ctx, on(filled), 1.5);
        fill(ctx, on(zeroed), 0);
        add_sum_of_squares(ctx, on(x), on(squares));
      });
      p.check(sum, 0, 0);
      p.check(narrowed, 0, kRoundedBound);
      p.check(scaled, 0, kRoundedBound);
      p.check_equal(filled);
      p.check_equal(zeroed);
      p.check(squares, 1e-13, 1e-13);
    }
    Parity p("strided copy", dtype);
    Twin &x = p.random("x", {20, 3, 17}), &y = p.output("y", {20, 3, 9}), &wide = p.output_accurate("wide", {20, 3, 12}), &widened = p.output_accurate("widened", {20, 3, 5});
    Parity::narrow_to(wide, 2, 5);
    p.run([&](ExecContext& ctx, const Parity::Side& on) {
      copy(ctx, on(x).slice(-1, 4, 13), on(y));
      copy(ctx, on(x).slice(-1, 1, 6), on(wide));
      copy(ctx, on(x).slice(-1, 1, 6), on(widened));
    });
    p.check_equal(y);
    p.check_equal(wide);
    p.check_equal(widened);
  }
}

TEST_CASE("random initialisation has the same bits on the GPU and the CPU", "[elementwise][cuda]") {
  constexpr int64_t kElements = 1 << 20;
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16}) {
    ExecContext cpu = ExecContext::cpu();
    if (find_gpus().empty()) {
      SKIP("no GPU");
    }
    ExecContext gpu = ExecContext::cuda(kGpu);
    const Tensor wanted(dtype, {kElements}), got(dtype, {kElements}, kGpu);
    const RandomStream stream{.seed = 1234, .stream = stream_id("init/model.layers.3.self_attn.q_proj.weight")};
    fill_normal(cpu, wanted, stream, 0.01, 0.02, int64_t{5} << 32);
    fill_normal(gpu, got, stream, 0.01, 0.02, int64_t{5} << 32);
    gpu.cuda_context().stream().synchronize();
    const bool equal = bitwise_equal(copy_to(got, Device{}), wanted);
    fmt::print("parity {:<22} {:<14} {:<5} {}\n", "fill_normal", "x", to_string(dtype), equal ? "equal" : "DIFFERENT");
    CHECK(equal);
  }
}
