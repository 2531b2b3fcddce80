// Views: strides, slices, checks; bf16 rounding.
#include "tensor/tensor.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <string>

using namespace longhaul;

TEST_CASE("slices and rows are views of the same memory", "[tensor]") {
  Tensor tensor(DType::F32, {3, 4});
  for (int i = 0; i < 12; ++i) {
    tensor.values<float>()[static_cast<size_t>(i)] = static_cast<float>(i);
  }
  const TensorView columns = tensor.view().slice(1, 1, 3);
  CHECK(columns.shape() == Shape{3, 2});
  CHECK_FALSE(columns.is_contiguous());
  CHECK(columns.stride(0) == 4);
  CHECK(columns[2].data<float>()[1] == 10);
  CHECK(tensor.view().slice(0, 1, 3).is_contiguous());
  CHECK(tensor.view().reshape({2, 6})[1].data<float>()[0] == 6);
  CHECK_THROWS_AS(columns.reshape({6}), InternalError);
  CHECK_THROWS_AS(tensor.view().slice(1, 2, 5), InternalError);
  CHECK_THROWS_AS(tensor.view().data<double>(), ShapeError);
}

TEST_CASE("checks name the operation, the argument, got and wanted", "[tensor]") {
  const Tensor tensor(DType::F32, {3, 4});
  try {
    expect("linear", "weight", tensor, DType::F32, {4, 3});
    FAIL("must throw");
  } catch (const ShapeError& error) {
    CHECK(std::string(error.what()) == "linear: weight must be [4, 3], got f32[3, 4]");
  }
  CHECK_THROWS_AS(expect("linear", "x", tensor, DType::F64, {3, 4}), ShapeError);
  CHECK_THROWS_AS(expect("linear", "x", TensorView{}, DType::F64, {3, 4}), ShapeError);
}

TEST_CASE("bf16 rounds to nearest even and keeps NaN and infinity", "[tensor]") {
  CHECK(static_cast<float>(BFloat16(1.0f)) == 1.0f);
  CHECK(static_cast<float>(BFloat16(1.00390625f)) == 1.0f);       // halfway, to even
  CHECK(static_cast<float>(BFloat16(1.01171875f)) == 1.015625f);  // halfway, to even
  CHECK(std::isnan(static_cast<float>(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
  CHECK(std::isinf(static_cast<float>(BFloat16(std::numeric_limits<float>::max()))));
}
