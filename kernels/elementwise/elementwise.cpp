// See elementwise.h: checks arguments and picks the backend.
#include "kernels/elementwise/elementwise.h"

#include "kernels/elementwise/elementwise_cpu.h"
#include "kernels/expect.h"
#include "kernels/no_cuda.h"

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
    case DeviceKind::Cuda: throw_no_cuda(kOp);
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
    case DeviceKind::Cuda: throw_no_cuda(kOp);
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
    case DeviceKind::Cuda: throw_no_cuda(kOp);
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
    case DeviceKind::Cuda: throw_no_cuda(kOp);
  }
}

void add_sum_of_squares(ExecContext& ctx, TensorView x, TensorView sum_of_squares) {
  constexpr std::string_view kOp = "add_sum_of_squares";
  expect_float(kOp, "x", x);
  expect_contiguous(kOp, "x", x);
  expect(kOp, "sum_of_squares", sum_of_squares, DType::F64, {1});
  if (ctx.is_planning()) {
    return;
  }
  switch (ctx.device().kind) {
    case DeviceKind::Cpu: cpu::add_sum_of_squares(x, sum_of_squares); return;
    case DeviceKind::Cuda: throw_no_cuda(kOp);
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
    case DeviceKind::Cuda: throw_no_cuda(kOp);
  }
}

}  // namespace longhaul
