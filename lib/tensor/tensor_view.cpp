// See tensor_view.h.
#include "tensor/tensor_view.h"

#include "base/cast.h"
#include "base/error.h"

namespace longhaul {

Shape::Shape(std::initializer_list<int64_t> sizes) {
  LH_CHECK(sizes.size() <= kMaxRank, "a tensor has at most {} dimensions, got {}", kMaxRank, sizes.size());
  for (const int64_t size : sizes) {
    LH_CHECK(size >= 0, "a dimension cannot be {}", size);
    sizes_[static_cast<size_t>(rank_++)] = size;
  }
}

void Shape::append(int64_t size) {
  LH_CHECK(rank_ < kMaxRank, "a tensor has at most {} dimensions", kMaxRank);
  sizes_[static_cast<size_t>(rank_++)] = size;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int d = 0; d < rank_; ++d) {
    text += fmt::format("{}{}", d == 0 ? "" : ", ", (*this)[d]);
  }
  return text + "]";
}

void throw_wrong_type(std::string_view op, std::string_view backend, std::string_view wanted, DType dtype) {
  throw ShapeError("{}: {} computes in {}, got {}", op, backend, wanted, to_string(dtype));
}

void TensorView::throw_read_as(DType wanted) const {
  throw ShapeError("a {} tensor was read as {}", longhaul::to_string(dtype_), longhaul::to_string(wanted));
}

TensorView::TensorView(void* data, DType dtype, const Shape& shape, Device device)
    : data_(data), dtype_(dtype), present_(true), shape_(shape), device_(device) {
  int64_t stride = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    strides_[static_cast<size_t>(d)] = stride;
    stride *= shape[d];
  }
}

bool TensorView::is_contiguous() const noexcept {
  int64_t wanted = 1;
  for (int d = rank() - 1; d >= 0; --d) {
    if (size(d) != 1 && stride(d) != wanted) {
      return false;
    }
    wanted *= size(d);
  }
  return true;
}

std::string TensorView::to_string() const {
  return present_ ? fmt::format("{}{}", longhaul::to_string(dtype_), shape_.to_string()) : std::string("absent");
}

TensorView TensorView::slice(int dim, int64_t begin, int64_t end) const {
  const int d = dim < 0 ? rank() + dim : dim;
  LH_CHECK(d >= 0 && d < rank() && 0 <= begin && begin <= end && end <= size(d), "cannot slice [{}, {}) of dimension {} of {}",
           begin, end, dim, to_string());
  TensorView view = *this;
  view.shape_.set(d, end - begin);
  if (data_ != nullptr) {
    view.data_ = static_cast<std::byte*>(data_) + begin * stride(d) * size_of(dtype_);
  }
  return view;
}

TensorView TensorView::reshape(const Shape& shape) const {
  LH_CHECK(is_contiguous(), "only a contiguous tensor can be reshaped: {}", to_string());
  LH_CHECK(shape.numel() == numel(), "{} cannot be reshaped to {}", to_string(), shape.to_string());
  TensorView view(data_, dtype_, shape, device_);
  view.present_ = present_;
  return view;
}

TensorView TensorView::operator[](int64_t index) const {
  LH_CHECK(rank() > 0 && index >= 0 && index < size(0), "index {} is outside {}", index, to_string());
  TensorView view = *this;
  view.shape_ = Shape{};
  for (int d = 1; d < rank(); ++d) {
    view.shape_.append(size(d));
    view.strides_[static_cast<size_t>(d - 1)] = stride(d);
  }
  if (data_ != nullptr) {
    view.data_ = static_cast<std::byte*>(data_) + index * stride(0) * size_of(dtype_);
  }
  return view;
}

TensorView take(Arena& arena, std::string_view name, DType dtype, const Shape& shape) {
  return {arena.take_bytes(name, shape.numel() * size_of(dtype)), dtype, shape, arena.device()};
}

void expect_shape(std::string_view op, std::string_view argument, const TensorView& view, const Shape& wanted) {
  if (!view.is_present() || view.shape() != wanted) {
    throw ShapeError("{}: {} must be {}, got {}", op, argument, wanted.to_string(), view.to_string());
  }
}

void expect_dtype(std::string_view op, std::string_view argument, const TensorView& view, DType wanted) {
  if (view.dtype() != wanted) {
    throw ShapeError("{}: {} must be {}, got {}", op, argument, to_string(wanted), view.to_string());
  }
}

void expect_contiguous(std::string_view op, std::string_view argument, const TensorView& view) {
  if (!view.is_contiguous()) {
    throw ShapeError("{}: {} must be contiguous: {}", op, argument, view.to_string());
  }
}

void expect(std::string_view op, std::string_view argument, const TensorView& view, DType dtype, const Shape& wanted) {
  expect_shape(op, argument, view, wanted);
  expect_dtype(op, argument, view, dtype);
  expect_contiguous(op, argument, view);
}

}  // namespace longhaul
