// An owning contiguous tensor.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "base/cast.h"
#include "device/buffer.h"
#include "tensor/tensor_view.h"

namespace longhaul {

class Tensor {
 public:
  Tensor() = default;
  // The content is unspecified.
  Tensor(DType dtype, const Shape& shape, Device device = {})
      : buffer_(device, shape.numel() * size_of(dtype)), view_(buffer_.data(), dtype, shape, device) {}
  explicit Tensor(const TensorSpec& spec, Device device = {}) : Tensor(spec.dtype, spec.shape, device) {}

  [[nodiscard]] static Tensor zeros(DType dtype, const Shape& shape) {
    Tensor tensor(dtype, shape);
    if (tensor.view().bytes() > 0) {
      std::memset(tensor.view().raw(), 0, static_cast<size_t>(tensor.view().bytes()));
    }
    return tensor;
  }
  // A CPU tensor with these values, row-major.
  template <class T>
  [[nodiscard]] static Tensor from(std::span<const T> values, const Shape& shape) {
    LH_CHECK(narrow<int64_t>(values.size()) == shape.numel(), "{} values do not fill {}", values.size(), shape.to_string());
    Tensor tensor(kDTypeOf<T>, shape);
    if (!values.empty()) {
      std::memcpy(tensor.view().raw(), values.data(), values.size_bytes());
    }
    return tensor;
  }
  template <class T>
  [[nodiscard]] static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }

  [[nodiscard]] const TensorView& view() const noexcept { return view_; }
  operator TensorView() const noexcept { return view_; }  // NOLINT: an owner reads as its view
  // The elements of a CPU tensor.
  template <class T>
  [[nodiscard]] std::span<T> values() const {
    return {view_.data<T>(), static_cast<size_t>(view_.numel())};
  }

 private:
  Buffer buffer_;
  TensorView view_;
};

}  // namespace longhaul
