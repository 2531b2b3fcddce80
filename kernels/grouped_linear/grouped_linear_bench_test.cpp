// Times of grouped products on a GPU, printed on demand: kernel_grouped_linear_test "[.gpu_bench]". No asserts.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>

#include "device/gpus.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/grouped_linear/grouped_linear_cuda.h"
#include "tensor/host_copy.h"

namespace longhaul {
namespace {

constexpr Device kGpu{DeviceKind::Cuda, 0};
constexpr int64_t kRows = 131072;

enum class Rows { Even, Ragged, OneHuge };
constexpr const char* kRowsNames[] = {"even", "ragged", "one huge"};

// Ragged: between a third and five thirds of the mean. One huge: half of all rows are of one expert.
std::vector<int64_t> bounds_of(Rows kind, int64_t experts) {
  std::vector<double> shares(static_cast<size_t>(experts), 1.0);
  for (size_t e = 0; e < shares.size(); ++e) {
    if (kind == Rows::Ragged) {
      shares[e] = 1.0 + static_cast<double>(static_cast<int64_t>(e * 29 % 41) - 20) / 30.0;
    } else if (kind == Rows::OneHuge && e == 3) {
      shares[e] = static_cast<double>(experts);
    }
  }
  double total = 0, upto = 0;
  for (const double share : shares) {
    total += share;
  }
  std::vector<int64_t> bounds{0};
  for (const double share : shares) {
    upto += share;
    bounds.push_back(static_cast<int64_t>(upto / total * static_cast<double>(kRows) + 0.5));
  }
  return bounds;
}

// Median over runs of several calls, which are enqueued together.
template <class Fn>
double gpu_seconds(CudaContext& cuda, Fn&& fn) {
  constexpr int kCalls = 20;
  std::vector<double> times;
  for (int repeat = 0; repeat < 6; ++repeat) {
    cuda.stream().synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < kCalls; ++call) {
      fn();
    }
    cuda.stream().synchronize();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kCalls);
  }
  std::sort(times.begin() + 1, times.end());  // the first warms up
  return times[3];
}

void measure(Rows kind, int64_t experts, int64_t in, int64_t out) {
  CudaContext cuda(kGpu);
  ExecContext ctx(kGpu, ExecContext::Mode::Execute, Arena(kGpu, "scratch", 0, Arena::Growth::Chunked), &cuda);
  uint64_t stream = 0;
  const auto random = [&](const Shape& shape, double stddev) {
    Tensor tensor(DType::BF16, shape, kGpu);
    fill_normal(ctx, tensor, RandomStream{.seed = 7, .stream = ++stream}, 0, stddev);
    return tensor;
  };
  const Tensor x = random({kRows, in}, 1), weight = random({experts, out, in}, 0.05), dy = random({kRows, out}, 1);
  const Tensor y = random({kRows, out}, 1), dx = random({kRows, in}, 1);
  const Tensor dweight = copy_to(Tensor::zeros(DType::F32, {experts, out, in}), kGpu);
  const Tensor offsets = copy_to(Tensor::from(bounds_of(kind, experts), {experts + 1}), kGpu);
  const double flops = 2.0 * static_cast<double>(kRows) * static_cast<double>(in) * static_cast<double>(out);
  for (const cuda::TensorCores cores : {cuda::TensorCores::Warp, cuda::TensorCores::Best}) {
    const auto backward = [&](bool with_dx, Accumulate accumulate) {
      GroupedLinearBackward op{.dy = dy, .x = x, .weight = weight, .offsets = offsets, .accumulate_dx = accumulate};
      (with_dx ? op.dx : op.dweight) = with_dx ? dx : dweight;
      return gpu_seconds(cuda, [&] { cuda::grouped_linear_backward(ctx, op, cores); });
    };
    const GroupedLinearForward op{.x = x, .weight = weight, .offsets = offsets, .y = y};
    const double forward = gpu_seconds(cuda, [&] { cuda::grouped_linear_forward(ctx, op, cores); });
    const double set = backward(true, Accumulate::Overwrite), added = backward(true, Accumulate::Add);
    const double weights = backward(false, Accumulate::Overwrite);
    const auto text = [&](double seconds) { return fmt::format("{:6.1f} us {:5.1f} TFLOP/s", seconds * 1e6, flops / seconds * 1e-12); };
    fmt::print("{:<8} {:>3} experts {:>4} -> {:<4} {:<9}: forward {}; dx {}; dx added {}; dW {}\n", kRowsNames[static_cast<int>(kind)],
               experts, in, out, cores == cuda::TensorCores::Warp ? "mma.sync" : "best", text(forward), text(set), text(added),
               text(weights));
  }
}

TEST_CASE("grouped_linear timing on the GPU", "[.gpu_bench]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  measure(Rows::Ragged, 64, 512, 512);
  measure(Rows::Even, 64, 512, 512);
  measure(Rows::OneHuge, 64, 512, 512);
  measure(Rows::Ragged, 64, 512, 1024);
  measure(Rows::Ragged, 64, 1024, 512);
  measure(Rows::Ragged, 64, 128, 256);
  measure(Rows::Ragged, 256, 512, 512);
}

}  // namespace
}  // namespace longhaul
