// Times of the general CUDA version, whatever kda.h would choose; hidden: run with [.bench]. And a test of both versions that
// needs 130 GB of GPU memory, hidden: [.large].
#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <functional>

#include "kernels/gpu_test.h"
#include "kernels/kda/kda_cuda.h"
#include "kernels/kda/kda_hopper.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;

// [tokens, ...] on the GPU: random rows of 64 tokens, repeated, then copied by doubling.
Tensor repeated(DType dtype, const Shape& shape, const char* name, double stddev, double mean) {
  const int64_t tokens = shape[0], block = std::min<int64_t>(tokens, 64);
  const Shape start_shape = shape.rank() == 3 ? Shape{block, shape[1], shape[2]} : Shape{block, shape[1]};
  Tensor tensor(dtype, shape, kGpu);
  const Tensor start = random_tensor(dtype, start_shape, name, stddev, mean);
  copy_between(start, tensor.view().slice(0, 0, block));
  for (int64_t done = block; done < tokens;) {
    const int64_t more = std::min(done, tokens - done);
    copy_between(tensor.view().slice(0, 0, more), tensor.view().slice(0, done, done + more));
    done += more;
  }
  return tensor;
}

enum class Version : uint8_t { General, Served };  // the second: what kda.h chooses

struct Case {
  int64_t heads, dim;
  std::vector<int64_t> bounds;
  DType dtype;
  int64_t tokens = bounds.back(), documents = static_cast<int64_t>(bounds.size()) - 1;
  Shape wide{tokens, heads, dim};
  double unit = 1 / std::sqrt(static_cast<double>(dim));
  Tensor q = repeated(dtype, wide, "q", unit, 0), k = repeated(dtype, wide, "k", unit, 0), v = repeated(dtype, wide, "v", 1, 0);
  Tensor d_o = repeated(dtype, wide, "d_o", 1, 0);
  Tensor g = repeated(DType::F32, wide, "g", 0.1, -0.6), beta = repeated(DType::F32, {tokens, heads}, "beta", 0.05, 0.5);
  Tensor cu_seqlens = copy_to(Tensor::from(bounds, {documents + 1}), kGpu);
  Tensor o{dtype, wide, kGpu}, chunk_states{DType::F32, {kda_state_rows(tokens, documents, dim), heads, dim, dim}, kGpu};
  Tensor final_state{DType::F32, {documents, heads, dim, dim}, kGpu};
  Tensor dq{DType::F32, wide, kGpu}, dk{DType::F32, wide, kGpu}, dv{DType::F32, wide, kGpu}, dg{DType::F32, wide, kGpu};
  Tensor dbeta{DType::F32, {tokens, heads}, kGpu};
  Version version = Version::General;

  void forward(ExecContext& ctx) const {
    const KdaForward op{.q = q, .k = k, .v = v, .g = g, .beta = beta, .cu_seqlens = cu_seqlens, .scale = unit, .o = o,
                        .final_state = final_state, .chunk_states = chunk_states};
    if (version == Version::Served) {
      kda_forward(ctx, op);
      return;
    }
    const ArenaScope scope(ctx.scratch());
    cuda::kda_forward(ctx, op, cuda::take_kda_scratch(ctx.scratch(), op));
  }
  void backward(ExecContext& ctx) const {
    const KdaBackward op{.d_o = d_o, .q = q, .k = k, .v = v, .g = g, .beta = beta, .cu_seqlens = cu_seqlens, .scale = unit,
                         .chunk_states = chunk_states, .dq = dq, .dk = dk, .dv = dv, .dg = dg, .dbeta = dbeta};
    if (version == Version::Served) {
      kda_backward(ctx, op);
      return;
    }
    const ArenaScope scope(ctx.scratch());
    cuda::kda_backward(ctx, op, cuda::take_kda_scratch(ctx.scratch(), op));
  }
};

double median_ms(CudaContext& cuda, const std::function<void()>& op) {
  std::vector<double> times;
  for (int round = 0; round < 6; ++round) {  // the first warms up
    cuda.stream().synchronize();
    const auto start = std::chrono::steady_clock::now();
    op();
    cuda.stream().synchronize();
    if (round > 0) {
      times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

TEST_CASE("speed of kda on the GPU", "[.bench]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  CudaContext cuda(kGpu);
  ExecContext ctx(kGpu, ExecContext::Mode::Execute, Arena(kGpu, "scratch", int64_t{1} << 30, Arena::Growth::Chunked), &cuda);
  for (const auto& [tokens, heads, dim, dtype] : {std::tuple<int64_t, int64_t, int64_t, DType>{8192, 96, 128, DType::BF16},
                                                  {8192, 8, 128, DType::BF16}, {8192, 8, 128, DType::F32}, {4096, 4, 32, DType::F32}}) {
    const Case c{.heads = heads, .dim = dim, .bounds = {0, tokens}, .dtype = dtype};
    const double forward = median_ms(cuda, [&] { c.forward(ctx); }), backward = median_ms(cuda, [&] { c.backward(ctx); });
    fmt::print("bench kda {} x {} x {} {:<4} forward {:.3f} ms, backward {:.3f} ms, scratch {} bytes\n", tokens, heads, dim,
               to_string(dtype), forward, backward, ctx.scratch().high_water_bytes());
  }
}

// The last document must have the bits that it has alone, although it begins beyond 2^31 elements.
TEST_CASE("kda on the GPU with more than 2^31 elements", "[.large]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  const int64_t heads = 96, dim = 128, last = 192, before = 64 * 2732;
  const Version version = GENERATE(Version::General, Version::Served);
  if (version == Version::Served && !cuda::has_kda_hopper(kGpu)) {
    SKIP("no Hopper GPU");
  }
  INFO((version == Version::Served ? "the tensor-core version" : "the general version"));
  ExecContext ctx = ExecContext::cuda(kGpu);
  const Case whole{.heads = heads, .dim = dim, .bounds = {0, before - 1000, before, before + last}, .dtype = DType::BF16, .version = version};
  const Case alone{.heads = heads, .dim = dim, .bounds = {0, last}, .dtype = DType::BF16, .version = version};
  REQUIRE(before * heads * dim > (int64_t{1} << 31));
  for (const Case* c : {&whole, &alone}) {
    c->forward(ctx);
    c->backward(ctx);
  }
  ctx.cuda_context().stream().synchronize();
  const auto same = [&](const Tensor& a, const Tensor& b) {
    CHECK(bitwise_equal(copy_to(a.view().slice(0, before, before + last), Device{}), copy_to(b, Device{})));
  };
  same(whole.o, alone.o);
  same(whole.dq, alone.dq);
  same(whole.dk, alone.dk);
  same(whole.dv, alone.dv);
  same(whole.dg, alone.dg);
  same(whole.dbeta, alone.dbeta);
  CHECK(bitwise_equal(copy_to(whole.final_state.view().slice(0, 2, 3), Device{}), copy_to(alone.final_state, Device{})));
}

}  // namespace
}  // namespace longhaul
