// Cutting tensors: intersections, coverage, parts of limited size.
#include "checkpoint/piece.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <numeric>

#include "tensor/tensor.h"

using namespace longhaul;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("blocks intersect where they share elements", "[checkpoint]") {
  Block shared;
  REQUIRE(intersect({{0, 2}, {4, 3}}, {{3, 0}, {5, 4}}, shared));
  CHECK(shared.offset == std::vector<int64_t>{3, 2});
  CHECK(shared.shape == Shape{1, 2});
  CHECK_FALSE(intersect({{0, 0}, {4, 3}}, {{4, 0}, {5, 4}}, shared));  // they touch
  CHECK_FALSE(intersect({{0, 0}, {4, 0}}, {{0, 0}, {4, 4}}, shared));  // one is empty
  CHECK(intersect({{}, {}}, {{}, {}}, shared));                        // scalars
}

TEST_CASE("coverage finds gaps, overlaps and blocks outside", "[checkpoint]") {
  const Shape shape{4, 6};
  const std::vector<Block> quarters{{{0, 0}, {2, 3}}, {{2, 3}, {2, 3}}, {{0, 3}, {2, 3}}, {{2, 0}, {2, 3}}};
  CHECK(coverage_problem(shape, quarters).empty());
  CHECK_THAT(coverage_problem(shape, std::span(quarters).first(3)), ContainsSubstring("18 of its 24"));
  std::vector<Block> twice = quarters;
  twice[3] = twice[0];  // the right number of elements, the wrong ones
  CHECK_THAT(coverage_problem(shape, twice), ContainsSubstring("overlap"));
  std::vector<Block> outside = quarters;
  outside[1].offset[1] = 4;
  CHECK_THAT(coverage_problem(shape, outside), ContainsSubstring("reaches outside"));
  CHECK_THAT(coverage_problem(shape, std::vector<Block>{{{0}, {24}}}), ContainsSubstring("dimensions"));
  CHECK(coverage_problem({}, std::vector<Block>{{{}, {}}}).empty());
  CHECK_THAT(coverage_problem({}, std::vector<Block>{{{}, {}}, {{}, {}}}), ContainsSubstring("overlap"));
  CHECK_THAT(coverage_problem({}, {}), ContainsSubstring("0 of its 1"));
  CHECK(coverage_problem({0, 3}, {}).empty());
}

TEST_CASE("parts keep the row-major order and the limit", "[checkpoint]") {
  Tensor tensor(DType::I32, {5, 4, 6});
  std::iota(tensor.values<int32_t>().begin(), tensor.values<int32_t>().end(), 0);
  const TensorView views[]{tensor.view(), tensor.view().slice(2, 1, 4), tensor.view().slice(0, 1, 3)};
  for (const TensorView& view : views) {
    std::vector<int32_t> expected;
    for (int64_t i = 0; i < view.numel(); ++i) {
      const int64_t plane = view.size(1) * view.size(2);
      const int64_t at = i / plane * view.stride(0) + i % plane / view.size(2) * view.stride(1) + i % view.size(2);
      expected.push_back(view.data<int32_t>()[at]);
    }
    for (const int64_t limit : {1, 4, 11, 24, 50, 96, 200, 100000}) {
      CAPTURE(limit);
      std::vector<int32_t> got;
      for_each_part(view, limit, [&](const std::vector<int64_t>& offset, const TensorView& part) {
        REQUIRE(part.bytes() <= std::max<int64_t>(limit, 4));
        REQUIRE(part.rank() == 3);
        const Tensor copy(part.spec());
        copy_strided(part, copy);
        // The offset must lead to the same first element.
        const int64_t at = offset[0] * view.stride(0) + offset[1] * view.stride(1) + offset[2];
        REQUIRE(copy.values<int32_t>()[0] == view.data<int32_t>()[at]);
        got.insert(got.end(), copy.values<int32_t>().begin(), copy.values<int32_t>().end());
      });
      CHECK(got == expected);
    }
  }
}
