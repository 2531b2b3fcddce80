// Permutation to expert order and back: a hand case, inverses, gradients, empty experts, no tokens.
#include "kernels/permute/permute.h"

#include <catch2/catch_test_macros.hpp>
#include <algorithm>
#include <numeric>

#include "kernels/op_test.h"

namespace longhaul {
namespace {

using testing::poisoned;
using testing::random_tensor;

struct Plan {
  Tensor row_of_slot, offsets;
};

Plan plan_of(const Tensor& experts, int64_t num_experts) {
  Plan plan{Tensor(DType::I64, {experts.view().numel()}), Tensor(DType::I64, {num_experts + 1})};
  std::ranges::fill(plan.row_of_slot.values<int64_t>(), -1);
  std::ranges::fill(plan.offsets.values<int64_t>(), -1);
  ExecContext ctx = ExecContext::cpu();
  plan_permutation(ctx, {.experts = experts, .num_experts = num_experts, .row_of_slot = plan.row_of_slot, .offsets = plan.offsets});
  return plan;
}

// Three tokens, two choices; experts 1 and 4 stay empty.
const std::vector<int32_t> kChoices{2, 0, 0, 3, 2, 0};
constexpr int64_t kTokens = 3;
constexpr int64_t kTopK = 2;
constexpr int64_t kDim = 11;

TEST_CASE("slots are sorted by expert and stay in order within one", "[kernels]") {
  const Plan plan = plan_of(Tensor::from(kChoices, {kTokens, kTopK}), 5);
  CHECK(testing::to_doubles(plan.offsets) == std::vector<double>{0, 3, 3, 5, 6, 6});
  CHECK(testing::to_doubles(plan.row_of_slot) == std::vector<double>{3, 0, 1, 5, 4, 2});
}

TEST_CASE("a large plan is a stable sort", "[kernels]") {
  constexpr int64_t kSlots = 500;
  const Tensor experts(DType::I32, {kSlots});
  for (size_t s = 0; s < kSlots; ++s) {
    experts.values<int32_t>()[s] = static_cast<int32_t>((s * s * 31 + s) % 7);
  }
  const Plan plan = plan_of(experts, 7);
  std::vector<size_t> order(kSlots);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t s) { return experts.values<int32_t>()[s]; });
  for (size_t row = 0; row < kSlots; ++row) {
    CHECK(plan.row_of_slot.values<int64_t>()[order[row]] == static_cast<int64_t>(row));
  }
}

TEST_CASE("permuting repeats each token once for each choice, for any element type", "[kernels]") {
  const Plan plan = plan_of(Tensor::from(kChoices, {kTokens, kTopK}), 5);
  const Tensor x = Tensor::from(std::vector<int32_t>{10, 11, 20, 21, 30, 31}, {kTokens, 2});
  const Tensor y = Tensor::zeros(DType::I32, {kTokens * kTopK, 2});
  ExecContext ctx = ExecContext::cpu();
  permute_forward(ctx, {.x = x, .row_of_slot = plan.row_of_slot, .top_k = kTopK, .y = y});
  CHECK(testing::to_doubles(y) == std::vector<double>{10, 11, 20, 21, 30, 31, 10, 11, 30, 31, 20, 21});
}

TEST_CASE("combining permuted rows with weights that sum to one returns the tokens", "[kernels]") {
  const Plan plan = plan_of(Tensor::from(kChoices, {kTokens, kTopK}), 5);
  const Tensor x = random_tensor(DType::F32, {kTokens, kDim}, "x");
  const Tensor rows = poisoned(DType::F32, {kTokens * kTopK, kDim});
  const Tensor y = poisoned(DType::F32, {kTokens, kDim});
  const Tensor weights = Tensor::from(std::vector<float>{.25f, .75f, .5f, .5f, 1, 0}, {kTokens, kTopK});
  ExecContext ctx = ExecContext::cpu();
  permute_forward(ctx, {.x = x, .row_of_slot = plan.row_of_slot, .top_k = kTopK, .y = rows});
  combine_forward(ctx, {.x = rows, .row_of_slot = plan.row_of_slot, .weights = weights, .y = y});
  CHECK(testing::difference(y, x).within(1e-6));
}

TEST_CASE("permute and combine gradients agree with finite differences", "[kernels][grad]") {
  const Plan plan = plan_of(Tensor::from(kChoices, {kTokens, kTopK}), 5);
  ExecContext ctx = ExecContext::cpu();

  SECTION("permute") {
    const Tensor x = random_tensor(DType::F64, {kTokens, kDim}, "x");
    const Tensor dy = random_tensor(DType::F64, {kTokens * kTopK, kDim}, "dy");
    const Tensor dx = poisoned(DType::F64, {kTokens, kDim});
    permute_backward(ctx, {.dy = dy, .row_of_slot = plan.row_of_slot, .top_k = kTopK, .dx = dx});
    const auto loss = [&] {
      const Tensor y = poisoned(DType::F64, {kTokens * kTopK, kDim});
      permute_forward(ctx, {.x = x, .row_of_slot = plan.row_of_slot, .top_k = kTopK, .y = y});
      return testing::dot(y, dy);
    };
    CHECK(testing::gradient_error(x, dx, loss) < 1e-8);
  }
  SECTION("combine") {
    const Tensor x = random_tensor(DType::F64, {kTokens * kTopK, kDim}, "x");
    const Tensor weights = random_tensor(DType::F64, {kTokens, kTopK}, "weights");
    const Tensor dy = random_tensor(DType::F64, {kTokens, kDim}, "dy");
    const Tensor dx = poisoned(DType::F64, {kTokens * kTopK, kDim});
    const Tensor dweights = poisoned(DType::F64, {kTokens, kTopK});
    combine_backward(ctx, {.dy = dy, .x = x, .row_of_slot = plan.row_of_slot, .weights = weights, .dx = dx, .dweights = dweights});
    const auto loss = [&] {
      const Tensor y = poisoned(DType::F64, {kTokens, kDim});
      combine_forward(ctx, {.x = x, .row_of_slot = plan.row_of_slot, .weights = weights, .y = y});
      return testing::dot(y, dy);
    };
    CHECK(testing::gradient_error(x, dx, loss) < 1e-8);
    CHECK(testing::gradient_error(weights, dweights, loss) < 1e-8);
  }
}

TEST_CASE("no tokens give empty groups for every expert", "[kernels]") {
  const Plan plan = plan_of(Tensor(DType::I32, {0, kTopK}), 3);
  CHECK(testing::to_doubles(plan.offsets) == std::vector<double>{0, 0, 0, 0});
  const Tensor none(DType::F32, {0, kDim});
  ExecContext ctx = ExecContext::cpu();
  CHECK_NOTHROW(permute_forward(ctx, {.x = none, .row_of_slot = plan.row_of_slot, .top_k = kTopK, .y = none}));
  CHECK_NOTHROW(permute_backward(ctx, {.dy = none, .row_of_slot = plan.row_of_slot, .top_k = kTopK, .dx = none}));
}

TEST_CASE("permutations refuse wrong arguments", "[kernels]") {
  const Tensor experts = Tensor::from(kChoices, {kTokens, kTopK});
  CHECK_THROWS_AS(plan_of(experts, 3), InternalError);  // expert 3 of three
  const Plan plan = plan_of(experts, 5);
  const Tensor x = random_tensor(DType::F32, {kTokens, kDim}, "x");
  const Tensor rows = poisoned(DType::F32, {kTokens * kTopK, kDim});
  ExecContext ctx = ExecContext::cpu();
  ExecContext plan_ctx = ExecContext::plan(Device{});
  CHECK_THROWS_AS(permute_forward(plan_ctx, {.x = x, .row_of_slot = plan.row_of_slot, .top_k = 3, .y = rows}), ShapeError);
  CHECK_THROWS_AS(permute_forward(plan_ctx, {.x = x, .row_of_slot = plan.row_of_slot, .top_k = kTopK, .y = x}), ShapeError);
  const Tensor wrong_type = poisoned(DType::F64, {kTokens, kTopK});
  CHECK_THROWS_AS(combine_forward(plan_ctx, {.x = rows, .row_of_slot = plan.row_of_slot, .weights = wrong_type, .y = x}), ShapeError);
  plan.row_of_slot.values<int64_t>()[2] = kTokens * kTopK;
  CHECK_THROWS_AS(permute_forward(ctx, {.x = x, .row_of_slot = plan.row_of_slot, .top_k = kTopK, .y = rows}), InternalError);
}

}  // namespace
}  // namespace longhaul
