// Grouped linear maps against plain loops, with empty experts and poisoned rows beyond the last offset.
#include "kernels/grouped_linear/grouped_linear.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"

namespace longhaul {
namespace {

using testing::random_tensor;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kRows = 9;  // the last two belong to no expert
constexpr int64_t kIn = 5;
constexpr int64_t kOut = 3;
constexpr int64_t kExperts = 4;
const std::vector<int64_t> kOffsets{0, 0, 4, 4, 7};  // experts 0 and 2 have no rows

Tensor filled(DType dtype, const Shape& shape, double value) {
  Tensor tensor(dtype, shape);
  for (int64_t i = 0; i < shape.numel(); ++i) {
    if (dtype == DType::F64) {
      tensor.values<double>()[static_cast<size_t>(i)] = value;
      continue;
    }
    tensor.values<float>()[static_cast<size_t>(i)] = static_cast<float>(value);
  }
  return tensor;
}

void poison_tail(const Tensor& tensor) {
  const int64_t width = tensor.view().size(1);
  for (int64_t i = kOffsets.back() * width; i < kRows * width; ++i) {
    tensor.values<double>()[static_cast<size_t>(i)] = kNaN;
  }
}

struct Problem {
  Tensor x = random_tensor(DType::F64, {kRows, kIn}, "x");
  Tensor weight = random_tensor(DType::F64, {kExperts, kOut, kIn}, "weight");
  Tensor offsets = Tensor::from(kOffsets, {kExperts + 1});
  Tensor dy = random_tensor(DType::F64, {kRows, kOut}, "dy");
  Problem() {
    poison_tail(x);
    poison_tail(dy);
  }
  // <dy, y> over the rows that belong to an expert.
  double loss() const {
    ExecContext ctx = ExecContext::cpu();
    Tensor y(DType::F64, {kRows, kOut});
    grouped_linear_forward(ctx, {.x = x, .weight = weight, .offsets = offsets, .y = y});
    return testing::dot(y.view().slice(0, 0, kOffsets.back()), dy.view().slice(0, 0, kOffsets.back()));
  }
};

TEST_CASE("each row meets the weight of its expert, and rows of nobody stay untouched", "[kernels]") {
  const Problem p;
  ExecContext ctx = ExecContext::cpu();
  const Tensor y = filled(DType::F64, {kRows, kOut}, 7);
  grouped_linear_forward(ctx, {.x = p.x, .weight = p.weight, .offsets = p.offsets, .y = y});
  Tensor wanted = filled(DType::F64, {kRows, kOut}, 7);
  for (int64_t e = 0; e < kExperts; ++e) {
    for (int64_t r = kOffsets[static_cast<size_t>(e)]; r < kOffsets[static_cast<size_t>(e) + 1]; ++r) {
      for (int64_t o = 0; o < kOut; ++o) {
        double sum = 0;
        for (int64_t i = 0; i < kIn; ++i) {
          sum += p.x.values<double>()[static_cast<size_t>(r * kIn + i)] *
                 p.weight.values<double>()[static_cast<size_t>((e * kOut + o) * kIn + i)];
        }
        wanted.values<double>()[static_cast<size_t>(r * kOut + o)] = sum;
      }
    }
  }
  const auto diff = testing::difference(y, wanted);
  INFO(diff.text);
  CHECK(diff.within(1e-14));
}

TEST_CASE("grouped linear gradients agree with finite differences", "[kernels][grad]") {
  const Problem p;
  ExecContext ctx = ExecContext::cpu();
  const Tensor dx = filled(DType::F64, {kRows, kIn}, 0);
  const Tensor dweight = filled(DType::F64, {kExperts, kOut, kIn}, 0);
  grouped_linear_backward(ctx, {.dy = p.dy, .x = p.x, .weight = p.weight, .offsets = p.offsets, .dx = dx, .dweight = dweight});
  CHECK(testing::gradient_error(p.weight, dweight, [&] { return p.loss(); }) < 1e-8);
  const int64_t used = kOffsets.back();
  CHECK(testing::gradient_error(p.x.view().slice(0, 0, used), dx.view().slice(0, 0, used), [&] { return p.loss(); }) < 1e-8);
  for (int64_t i = used * kIn; i < kRows * kIn; ++i) {
    CHECK(dx.values<double>()[static_cast<size_t>(i)] == 0);
  }
}

TEST_CASE("weight gradients accumulate, and input gradients as asked", "[kernels]") {
  const Problem p;
  ExecContext ctx = ExecContext::cpu();
  const Tensor once = filled(DType::F64, {kExperts, kOut, kIn}, 0);
  const Tensor twice = filled(DType::F64, {kExperts, kOut, kIn}, 0);
  const Tensor overwritten = filled(DType::F64, {kRows, kIn}, kNaN);
  const Tensor added = filled(DType::F64, {kRows, kIn}, 1);
  const GroupedLinearBackward base{.dy = p.dy, .x = p.x, .weight = p.weight, .offsets = p.offsets};
  auto op = base;
  op.dx = overwritten;
  op.dweight = once;
  grouped_linear_backward(ctx, op);
  op = base;
  op.dx = added;
  op.accumulate_dx = Accumulate::Add;
  op.dweight = twice;
  grouped_linear_backward(ctx, op);
  op.dx = {};
  grouped_linear_backward(ctx, op);
  for (size_t i = 0; i < once.values<double>().size(); ++i) {
    CHECK(std::abs(twice.values<double>()[i] - 2 * once.values<double>()[i]) < 1e-13);
  }
  for (size_t i = 0; i < static_cast<size_t>(kOffsets.back() * kIn); ++i) {
    CHECK(std::abs(added.values<double>()[i] - overwritten.values<double>()[i] - 1) < 1e-13);
  }
}

TEST_CASE("grouped linear takes slices of columns and single precision", "[kernels]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor wide = random_tensor(DType::F32, {kRows, 2 * kIn}, "wide");
  const Tensor weight = random_tensor(DType::F32, {kExperts, kOut, kIn}, "weight");
  const Tensor offsets = Tensor::from(kOffsets, {kExperts + 1});
  const TensorView right = wide.view().slice(1, kIn, 2 * kIn);
  Tensor packed(DType::F32, {kRows, kIn});
  for (int64_t r = 0; r < kRows; ++r) {
    std::copy_n(right.data<float>() + r * right.stride(0), kIn, packed.view().data<float>() + r * kIn);
  }
  const Tensor y_wide = filled(DType::F32, {kRows, 2 * kOut}, 5);
  const Tensor y = filled(DType::F32, {kRows, kOut}, 5);
  grouped_linear_forward(ctx, {.x = right, .weight = weight, .offsets = offsets, .y = y_wide.view().slice(1, 0, kOut)});
  grouped_linear_forward(ctx, {.x = packed, .weight = weight, .offsets = offsets, .y = y});
  CHECK(testing::difference(y_wide.view().slice(1, 0, kOut), y).within(1e-6));
  CHECK(y_wide.values<float>()[kOut] == 5.0f);  // the other half is not ours
}

TEST_CASE("grouped linear with no rows at all gives zero gradients", "[kernels]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor none(DType::F32, {0, kIn});
  const Tensor y(DType::F32, {0, kOut});
  const Tensor weight = random_tensor(DType::F32, {kExperts, kOut, kIn}, "weight");
  const Tensor offsets = Tensor::zeros(DType::I64, {kExperts + 1});
  const Tensor dweight = Tensor::zeros(DType::F64, {kExperts, kOut, kIn});
  grouped_linear_forward(ctx, {.x = none, .weight = weight, .offsets = offsets, .y = y});
  grouped_linear_backward(ctx, {.dy = y, .x = none, .weight = weight, .offsets = offsets, .dx = none, .dweight = dweight});
  for (const double value : dweight.values<double>()) {
    CHECK(value == 0.0f);
  }
}

TEST_CASE("grouped linear refuses wrong arguments, also in planning", "[kernels]") {
  const Problem p;
  ExecContext ctx = ExecContext::cpu();
  ExecContext plan = ExecContext::plan(Device{});
  const Tensor y(DType::F64, {kRows, kOut});
  GroupedLinearForward op{.x = p.x, .weight = p.weight, .offsets = p.offsets, .y = y};
  CHECK_NOTHROW(grouped_linear_forward(plan, op));
  op.y = p.x;
  CHECK_THROWS_AS(grouped_linear_forward(plan, op), ShapeError);
  op.y = y;
  op.weight = p.weight.view()[0];
  CHECK_THROWS_AS(grouped_linear_forward(ctx, op), ShapeError);
  op.weight = p.weight;
  const Tensor beyond = Tensor::from(std::vector<int64_t>{0, 0, 4, 4, kRows + 1}, {kExperts + 1});
  op.offsets = beyond;
  CHECK_THROWS_AS(grouped_linear_forward(ctx, op), InternalError);
  const Tensor falling = Tensor::from(std::vector<int64_t>{0, 4, 3, 4, 7}, {kExperts + 1});
  op.offsets = falling;
  CHECK_THROWS_AS(grouped_linear_forward(ctx, op), InternalError);
}

}  // namespace
}  // namespace longhaul
