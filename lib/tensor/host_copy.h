// Tensors between the host and a GPU, blocking: for tests, checkpoints and start-up.
#pragma once

#include "tensor/tensor.h"

namespace longhaul {

// A tensor's elements on the host, wherever it lives. On the CPU it is the tensor itself, without a copy.
class HostCopy {
 public:
  // On a GPU: contiguous, or of rank 2 with unit innermost stride (ShapeError otherwise).
  explicit HostCopy(const TensorView& tensor);
  [[nodiscard]] const TensorView& view() const noexcept { return view_; }

 private:
  Tensor copy_;
  TensorView view_;
};

// destination = source, of the same shape and type, between any two devices; each contiguous, or of rank 2 with unit
// innermost stride.
void copy_between(const TensorView& source, const TensorView& destination);

// A contiguous copy on `device`.
[[nodiscard]] Tensor copy_to(const TensorView& source, Device device);

}  // namespace longhaul
