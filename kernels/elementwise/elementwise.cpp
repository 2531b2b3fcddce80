// See elementwise.h: checks arguments and picks the backend.
#include "kernels/elementwise/elementwise.h"

#include "kernels/elementwise/elementwise_cpu.h"
#include "kernels/elementwise/elementwise_cuda.h"
#include "kernels/expect.h"

namespace longhaul {

void fill(ExecContext& ctx, TensorView x, double value) {
  constexpr std::string_view kOp = "fill";
  expect_shape(kOp, "x", x, x.shape());
  expect_contiguous(kOp, "x", x);
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::fill(x, value); return;
    case DeviceKind::Cuda: cuda::fill(ctx, x, value); return;
  }
}

void copy(ExecContext& ctx, TensorView source, TensorView destination) {
  constexpr std::string_view kOp = "copy";
  expect_shape(kOp, "source", source, source.shape());
  expect_shape(kOp, "destination", destination, source.shape());
  expect_unit_stride(kOp, "source", source);
  expect_unit_stride(kOp, "destination", destination);
  if (source.dtype() != destination.dtype()) {  // integers are copied but never converted
    expect_float(kOp, "source", source);
    expect_float(kOp, "destination", destination);
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::copy(source, destination); return;
    case DeviceKind::Cuda: cuda::copy(ctx, source, destination); return;
  }
}

void add(ExecContext& ctx, TensorView x, TensorView y) {
  constexpr std::string_view kOp = "add";
  expect_float(kOp, "x", x);
  expect_float(kOp, "y", y);
  expect_shape(kOp, "y", y, x.shape());
  expect_contiguous(kOp, "x", x);
  expect_contiguous(kOp, "y", y);
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::add(x, y); return;
    case DeviceKind::Cuda: cuda::add(ctx, x, y); return;
  }
}

void scale(ExecContext& ctx, TensorView x, double factor) {
  constexpr std::string_view kOp = "scale";
  expect_float(kOp, "x", x);
  expect_contiguous(kOp, "x", x);
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::scale(x, factor); return;
    case DeviceKind::Cuda: cuda::scale(ctx, x, factor); return;
  }
}

void add_sum_of_squares(ExecContext& ctx, TensorView x, TensorView sum_of_squares) {
  constexpr std::string_view kOp = "add_sum_of_squares";
  expect_float(kOp, "x", x);
  expect_contiguous(kOp, "x", x);
  expect(kOp, "sum_of_squares", sum_of_squares, DType::F64, {1});
  const ArenaScope scope(ctx.scratch());
  TensorView partials;
  if (ctx.device().kind == DeviceKind::Cuda) {
    partials = take(ctx.scratch(), "add_sum_of_squares.partials", DType::F64, {cuda::sum_of_squares_blocks(x.numel())});
  }
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::add_sum_of_squares(x, sum_of_squares); return;
    case DeviceKind::Cuda: cuda::add_sum_of_squares(ctx, x, sum_of_squares, partials); return;
  }
}

void fill_normal(ExecContext& ctx, TensorView x, RandomStream stream, double mean, double stddev, int64_t first_index) {
  constexpr std::string_view kOp = "fill_normal";
  expect_float(kOp, "x", x);
  expect_contiguous(kOp, "x", x);
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::fill_normal(x, stream, mean, stddev, first_index); return;
    case DeviceKind::Cuda: cuda::fill_normal(ctx, x, stream, mean, stddev, first_index); return;
  }
}

}  // namespace longhaul
