// See host_copy.h.
#include "tensor/host_copy.h"

#include "device/copy_bytes.h"

namespace longhaul {
namespace {

bool has_strided_rows(const TensorView& tensor) { return !tensor.is_contiguous() && tensor.rank() == 2 && tensor.stride(1) == 1; }

}  // namespace

void copy_between(const TensorView& source, const TensorView& destination) {
  expect_shape("copy_between", "destination", destination, source.shape());
  expect_dtype("copy_between", "destination", destination, source.dtype());
  const Place from{source.device(), source.raw()}, to{destination.device(), destination.raw()};
  if (source.is_contiguous() && destination.is_contiguous()) {
    copy_bytes(from, to, source.bytes());
    return;
  }
  for (const TensorView* tensor : {&source, &destination}) {
    if (!tensor->is_contiguous() && !has_strided_rows(*tensor)) {
      throw ShapeError("copy_between: a tensor must be contiguous or have strided rows, got {}", tensor->to_string());
    }
  }
  if (source.rank() != 2) {
    throw ShapeError("copy_between: strided rows are those of a matrix, got {}", source.to_string());
  }
  const int64_t size = size_of(source.dtype());
  copy_rows(from, source.stride(0) * size, to, destination.stride(0) * size, source.size(1) * size, source.size(0));
}

HostCopy::HostCopy(const TensorView& tensor) : view_(tensor) {
  if (tensor.device().kind == DeviceKind::Cuda) {
    copy_ = copy_to(tensor, Device{});
    view_ = copy_.view();
  }
}

Tensor copy_to(const TensorView& source, Device device) {
  Tensor result(source.dtype(), source.shape(), device);
  copy_between(source, result);
  return result;
}

}  // namespace longhaul
