// A typed, strided, non-owning view of device memory; the argument of every operation. Passed by value.
// A default-constructed view is "absent" (an optional argument left out). In planning (exec_context.h) views have a
// shape and a type but no data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "device/arena.h"
#include "device/device.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace longhaul {

// What a tensor will be, without memory.
struct TensorSpec {
  DType dtype = DType::F32;
  Shape shape;

  [[nodiscard]] int64_t bytes() const noexcept { return shape.numel() * size_of(dtype); }
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

class TensorView {
 public:
  TensorView() = default;
  // Contiguous, row-major.
  TensorView(void* data, DType dtype, const Shape& shape, Device device = {});

  // --- what it is ---
  [[nodiscard]] bool is_present() const noexcept { return present_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] int rank() const noexcept { return shape_.rank(); }
  [[nodiscard]] int64_t size(int dim) const noexcept { return shape_[dim]; }
  // In elements; negative dims count from the end.
  [[nodiscard]] int64_t stride(int dim) const noexcept {
    return strides_[static_cast<size_t>(dim < 0 ? rank() + dim : dim)];
  }
  [[nodiscard]] int64_t numel() const noexcept { return shape_.numel(); }
  [[nodiscard]] int64_t bytes() const noexcept { return numel() * size_of(dtype_); }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] TensorSpec spec() const noexcept { return {dtype_, shape_}; }
  [[nodiscard]] bool is_contiguous() const noexcept;
  [[nodiscard]] std::string to_string() const;  // "f32[12, 64]"

  // --- memory ---
  [[nodiscard]] void* raw() const noexcept { return data_; }
  // Throws ShapeError when the element type is another one.
  template <class T>
  [[nodiscard]] T* data() const {
    if (dtype_ != kDTypeOf<T>) {
      throw_read_as(kDTypeOf<T>);
    }
    return static_cast<T*>(data_);
  }

  // --- other views of the same memory ---
  // Elements [begin, end) of dimension `dim`.
  [[nodiscard]] TensorView slice(int dim, int64_t begin, int64_t end) const;
  // Same elements in another shape; the view must be contiguous.
  [[nodiscard]] TensorView reshape(const Shape& shape) const;
  // The i-th sub-tensor along dimension 0, with one dimension less.
  [[nodiscard]] TensorView operator[](int64_t index) const;

 private:
  [[noreturn]] void throw_read_as(DType wanted) const;

  void* data_ = nullptr;
  DType dtype_ = DType::F32;
  bool present_ = false;
  Shape shape_;
  std::array<int64_t, Shape::kMaxRank> strides_{};
  Device device_;
};

// Takes a contiguous tensor from an arena (no data when it is measuring). The content is unspecified.
[[nodiscard]] TensorView take(Arena& arena, std::string_view name, DType dtype, const Shape& shape);
[[nodiscard]] inline TensorView take(Arena& arena, std::string_view name, const TensorSpec& spec) {
  return take(arena, name, spec.dtype, spec.shape);
}

// --- argument checks, for the top of every operation ---
// Throws ShapeError naming op and argument, got and wanted.
void expect_shape(std::string_view op, std::string_view argument, const TensorView& view, const Shape& wanted);
void expect_dtype(std::string_view op, std::string_view argument, const TensorView& view, DType wanted);
void expect_contiguous(std::string_view op, std::string_view argument, const TensorView& view);
// Shape, dtype and contiguous rows, the common case.
void expect(std::string_view op, std::string_view argument, const TensorView& view, DType dtype, const Shape& wanted);

// The type in which results are accumulated and sensitive values kept: f64 for f64, otherwise f32.
[[nodiscard]] constexpr DType accurate_type(DType compute) noexcept { return compute == DType::F64 ? DType::F64 : DType::F32; }

// The type of weight gradients: f64 on the CPU, where their sum must not depend on the order of tokens, micro-batches and
// ranks (kernels/products/gradient_product.h); the accurate type on a GPU.
[[nodiscard]] constexpr DType gradient_type(DType compute, Device device) noexcept {
  return device.kind == DeviceKind::Cpu ? DType::F64 : accurate_type(compute);
}

}  // namespace longhaul
