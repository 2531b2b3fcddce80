// The GPU against the CPU: experts without rows, rows of nobody, ragged tiles, slices of columns, odd sizes; and each case both
// ways that bf16 can go.
#include "kernels/gpu_test.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/grouped_linear/grouped_linear_cuda.h"

using namespace longhaul;
using namespace longhaul::testing;

namespace {

// Offsets of experts with very different numbers of rows, some none.
std::vector<int64_t> offsets_of(int64_t experts, int64_t scale) {
  std::vector<int64_t> offsets{0};
  for (int64_t e = 0; e < experts; ++e) {
    offsets.push_back(offsets.back() + (e % 4 == 2 ? 0 : (e * 37 + 11) % (scale + 1)));
  }
  return offsets;
}
std::vector<int64_t> offsets_of(const std::vector<int64_t>& rows) {
  std::vector<int64_t> offsets{0};
  for (const int64_t count : rows) {
    offsets.push_back(offsets.back() + count);
  }
  return offsets;
}

// NaN in all rows from `first` on, on both sides.
void poison_rows(const Twin& twin, int64_t first) {
  for (int64_t i = first * twin.host.view().size(1); i < twin.host.view().numel(); ++i) {
    const auto at = static_cast<size_t>(i);
    twin.host.values<float>()[at] = NAN;
    if (twin.start.view().dtype() == DType::BF16) {
      twin.start.values<BFloat16>()[at] = BFloat16(NAN);
    } else {
      twin.start.values<float>()[at] = NAN;
    }
  }
  copy_between(twin.start, twin.gpu);
}

void forward(ExecContext& ctx, const GroupedLinearForward& op, cuda::TensorCores cores) {
  if (ctx.device().kind == DeviceKind::Cuda) {
    cuda::grouped_linear_forward(ctx, op, cores);
  } else {
    grouped_linear_forward(ctx, op);
  }
}
void backward(ExecContext& ctx, const GroupedLinearBackward& op, cuda::TensorCores cores) {
  if (ctx.device().kind == DeviceKind::Cuda) {
    cuda::grouped_linear_backward(ctx, op, cores);
  } else {
    grouped_linear_backward(ctx, op);
  }
}

// weight_bound: on the weight gradients, which are sums over rows in fp32.
void check_case(const std::vector<int64_t>& bounds, int64_t in, int64_t out, DType dtype, cuda::TensorCores cores,
                double weight_bound = kFloatBound) {
  const auto experts = static_cast<int64_t>(bounds.size()) - 1;
  Parity p(fmt::format("grouped_linear{} {}x{}x{}", cores == cuda::TensorCores::Warp ? "/warp" : "", experts, in, out), dtype);
  const int64_t rows = bounds.back() + 5;  // five belong to nobody
  const int64_t left = in % 8 == 0 ? 8 : 1;
  Twin& offsets = p.integers("offsets", bounds, {experts + 1});
  Twin &x = p.random("x", {rows, in + 16}), &weight = p.random("weight", {experts, out, in}, 0.3), &dy = p.random("dy", {rows, out});
  Twin &y = p.output("y", {rows, out + 8}), &dx = p.output("dx", {rows, in}), &dx_added = p.random("dx_added", {rows, in});
  Twin& dweight = p.gradient("dweight", {experts, out, in});
  poison_rows(x, bounds.back());
  poison_rows(dy, bounds.back());
  Parity::narrow_to(x, left, in);
  Parity::narrow_to(y, 0, out);
  p.run([&](ExecContext& ctx, const Parity::Side& on) {
    const GroupedLinearBackward base{.dy = on(dy), .x = on(x), .weight = on(weight), .offsets = on(offsets)};
    auto both = base, added = base;
    both.dx = on(dx);
    both.dweight = on(dweight);
    added.dx = on(dx_added);
    added.accumulate_dx = Accumulate::Add;
    forward(ctx, {.x = on(x), .weight = on(weight), .offsets = on(offsets), .y = on(y)}, cores);
    backward(ctx, both, cores);
    backward(ctx, added, cores);
  });
  p.check(y, kFloatBound, kRoundedBound);
  p.check(dx, kFloatBound, kRoundedBound);
  p.check(dx_added, kFloatBound, kRoundedBound);
  p.check(dweight, weight_bound, weight_bound);
}

}  // namespace

TEST_CASE("grouped_linear on the GPU equals the CPU", "[grouped_linear][cuda]") {
  for (const auto& [experts, scale, in, out] :
       {std::tuple<int64_t, int64_t, int64_t, int64_t>{40, 200, 128, 192},
        {5, 300, 200, 72}, {3, 40, 13, 7}, {70, 3, 64, 32}, {4, 0, 8, 8}}) {
    check_case(offsets_of(experts, scale), in, out, DType::F32, cuda::TensorCores::Best);
    check_case(offsets_of(experts, scale), in, out, DType::BF16, cuda::TensorCores::Best);
    check_case(offsets_of(experts, scale), in, out, DType::BF16, cuda::TensorCores::Warp);
  }
}

TEST_CASE("grouped_linear on the GPU with the widths of models", "[grouped_linear][cuda]") {
  const std::vector<int64_t> ragged = offsets_of({0, 1, 127, 128, 129, 300, 0, 0, 63, 64, 65, 5, 0}), huge = offsets_of({0, 3001, 0, 7});
  for (const cuda::TensorCores cores : {cuda::TensorCores::Best, cuda::TensorCores::Warp}) {
    check_case(ragged, 512, 512, DType::BF16, cores);
    check_case(ragged, 512, 1024, DType::BF16, cores);
    check_case(ragged, 128, 256, DType::BF16, cores);
    check_case(ragged, 384, 136, DType::BF16, cores);
    // Tensor cores cut what they add to a sum rather than round it, which shows in long sums.
    check_case(huge, 512, 512, DType::BF16, cores, 5e-5);
    check_case(huge, 256, 128, DType::BF16, cores, 5e-5);
  }
}
