// Gather and scatter-add against hand values; repeated ids, bad ids, empty input, errors, planning.
#include "kernels/embedding/embedding.h"

#include <catch2/matchers/catch_matchers_string.hpp>

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("embedding_forward gathers rows", "[embedding]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor table = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor ids = Tensor::from<int32_t>({2, 0, 2}, {3});
  const Tensor y = poisoned(DType::F32, {3, 2});
  embedding_forward(ctx, {.ids = ids, .table = table, .y = y});
  CHECK(to_doubles(y) == std::vector<double>{5, 6, 1, 2, 5, 6});
}

TEST_CASE("embedding_backward adds repeated ids onto what is there", "[embedding]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor ids = Tensor::from<int32_t>({2, 0, 2}, {3});
  const Tensor dy = Tensor::from<double>({1, 2, 3, 4, 10, 20}, {3, 2});
  const Tensor dtable = Tensor::from<double>({100, 100, 200, 200, 300, 300}, {3, 2});
  embedding_backward(ctx, {.dy = dy, .ids = ids, .dtable = dtable});
  CHECK(to_doubles(dtable) == std::vector<double>{103, 104, 200, 200, 311, 322});
}

TEST_CASE("embedding_backward agrees with finite differences", "[embedding][grad]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor table = random_tensor(DType::F64, {5, 3}, "table"), dy = random_tensor(DType::F64, {4, 3}, "dy");
  const Tensor ids = Tensor::from<int32_t>({4, 1, 1, 0}, {4});
  const Tensor y = poisoned(DType::F64, {4, 3}), dtable = Tensor::zeros(DType::F64, {5, 3});
  embedding_backward(ctx, {.dy = dy, .ids = ids, .dtable = dtable});
  CHECK(gradient_error(table, dtable, [&] {
          embedding_forward(ctx, {.ids = ids, .table = table, .y = y});
          return dot(dy, y);
        }) < 1e-8);
}

TEST_CASE("an id outside the table is a data error and writes nothing", "[embedding]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor table = Tensor::zeros(DType::F32, {3, 2});
  const Tensor y = Tensor::zeros(DType::F32, {2, 2}), dtable = Tensor::zeros(DType::F32, {3, 2});
  const Tensor dy = random_tensor(DType::F32, {2, 2}, "dy");
  for (const int32_t bad : {3, -1}) {
    const Tensor ids = Tensor::from<int32_t>({0, bad}, {2});
    CHECK_THROWS_AS(embedding_forward(ctx, {.ids = ids, .table = table, .y = y}), DataError);
    CHECK_THROWS_AS(embedding_backward(ctx, {.dy = dy, .ids = ids, .dtable = dtable}), DataError);
    CHECK_THROWS_WITH(embedding_forward(ctx, {.ids = ids, .table = table, .y = y}),
                      Catch::Matchers::ContainsSubstring("token 1 has id " + std::to_string(bad)));
  }
  CHECK(to_doubles(dtable) == std::vector<double>(6, 0.0));
}

TEST_CASE("embedding of no tokens", "[embedding]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor table = Tensor::zeros(DType::F32, {3, 2}), ids(DType::I32, {0}), y(DType::F32, {0, 2});
  embedding_forward(ctx, {.ids = ids, .table = table, .y = y});
  embedding_backward(ctx, {.dy = y, .ids = ids, .dtable = table});
  CHECK(to_doubles(table) == std::vector<double>(6, 0.0));
}

TEST_CASE("embedding names the argument that is wrong, and plans without data", "[embedding]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor table(DType::F32, {3, 2}), ids = Tensor::from<int32_t>({0, 1}, {2}), y(DType::F32, {2, 2});
  check_shape_error("ids", [&] { embedding_forward(ctx, {.ids = Tensor(DType::I64, {2}), .table = table, .y = y}); });
  check_shape_error("y", [&] { embedding_forward(ctx, {.ids = ids, .table = table, .y = table}); });
  check_shape_error("ids", [&] { embedding_backward(ctx, {.dy = table, .ids = ids, .dtable = table}); });
  check_shape_error("dtable", [&] { embedding_backward(ctx, {.dy = y, .ids = ids, .dtable = Tensor(DType::F32, {3, 4})}); });
  ExecContext plan = ExecContext::plan(Device{DeviceKind::Cuda, 0});
  embedding_forward(plan, {.ids = planned(DType::I32, {9}), .table = planned(DType::BF16, {3, 2}), .y = planned(DType::BF16, {9, 2})});
  embedding_backward(plan, {.dy = planned(DType::F32, {9, 2}), .ids = planned(DType::I32, {9}), .dtable = planned(DType::F32, {3, 2})});
  embedding_backward(plan, {.dy = planned(DType::BF16, {9, 2}), .ids = planned(DType::I32, {9}), .dtable = planned(DType::F32, {3, 2})});
}
