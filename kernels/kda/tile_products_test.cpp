// The small products and solves: against plain loops, that triangular sums never read what they exclude, and that a row's
// bits do not depend on how many rows and columns there are.
#include "kernels/kda/tile_products.h"

#include <algorithm>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kda/chunk_layout.h"
#include "kernels/kda/panels.h"
#include "kernels/kda/triangular_solve.h"
#include "kernels/op_test.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;
using tiles::Into;
using tiles::Sum;

constexpr int64_t kRows = 64;
constexpr int64_t kColumns = 32;

template <class T>
std::vector<T> random_values(int64_t count, const char* name) {
  const std::vector<double> values = to_doubles(random_tensor(DType::F64, {count}, name));
  return {values.begin(), values.end()};
}

bool admits(Sum sum, int64_t i, int64_t p) {
  switch (sum) {
    case Sum::Full: return true;
    case Sum::UpToRow: return p <= i;
    case Sum::BeforeRow: return p < i;
    case Sum::FromRow: return p >= i;
    case Sum::AfterRow: return p > i;
  }
  return false;
}

// A [64, 64] with NaN wherever `sum` must not look.
template <Sum sum, class T>
void check_product() {
  std::vector<T> a = random_values<T>(kRows * kRows, "tiles.a");
  const std::vector<T> b = random_values<T>(kRows * kColumns, "tiles.b");
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t p = 0; p < kRows; ++p) {
      if (!admits(sum, i, p)) {
        a[static_cast<size_t>(i * kRows + p)] = std::numeric_limits<T>::quiet_NaN();
      }
    }
  }
  std::vector<T> set(kRows * kColumns, std::numeric_limits<T>::quiet_NaN());
  std::vector<T> added(kRows * kColumns, T{1});
  std::vector<T> subtracted(kRows * kColumns, T{1});
  tiles::product<sum, Into::Set, T>(kRows, kColumns, kRows, {a.data(), kRows, 1}, b.data(), kColumns, set.data(), kColumns);
  tiles::product<sum, Into::Add, T>(kRows, kColumns, kRows, {a.data(), kRows, 1}, b.data(), kColumns, added.data(), kColumns);
  tiles::product<sum, Into::Subtract, T>(kRows, kColumns, kRows, {a.data(), kRows, 1}, b.data(), kColumns, subtracted.data(),
                                         kColumns);
  double worst = 0;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      double wanted = 0;
      for (int64_t p = 0; p < kRows; ++p) {
        wanted += admits(sum, i, p) ? static_cast<double>(a[static_cast<size_t>(i * kRows + p)]) *
                                          static_cast<double>(b[static_cast<size_t>(p * kColumns + j)])
                                    : 0.0;
      }
      const auto at = static_cast<size_t>(i * kColumns + j);
      for (const double error : {static_cast<double>(set[at]) - wanted, static_cast<double>(added[at]) - (1 + wanted),
                                 static_cast<double>(subtracted[at]) - (1 - wanted)}) {
        worst = std::isnan(error) ? INFINITY : std::max(worst, std::abs(error));
      }
    }
  }
  CHECK(worst < 300 * static_cast<double>(std::numeric_limits<T>::epsilon()));
}

TEMPLATE_TEST_CASE("products over full and triangular sums", "[kda]", float, double) {
  check_product<Sum::Full, TestType>();
  check_product<Sum::UpToRow, TestType>();
  check_product<Sum::BeforeRow, TestType>();
  check_product<Sum::FromRow, TestType>();
  check_product<Sum::AfterRow, TestType>();
}

TEMPLATE_TEST_CASE("a product row has the same bits whatever the size", "[kda]", float, double) {
  using T = TestType;
  const std::vector<T> a = random_values<T>(kRows * kRows, "tiles.a");
  const std::vector<T> b = random_values<T>(kRows * kColumns, "tiles.b");
  std::vector<T> whole(kRows * kColumns), part(kRows * kColumns);
  tiles::product<Sum::UpToRow, Into::Set, T>(kRows, kColumns, kRows, {a.data(), kRows, 1}, b.data(), kColumns, whole.data(),
                                             kColumns);
  for (int64_t rows = 4; rows <= kRows; rows += 4) {
    tiles::product<Sum::UpToRow, Into::Set, T>(rows, 16, rows, {a.data(), kRows, 1}, b.data(), kColumns, part.data(), kColumns);
    for (int64_t j = 0; j < 16; ++j) {
      const auto at = static_cast<size_t>((rows - 1) * kColumns + j);
      REQUIRE(std::memcmp(&whole[at], &part[at], sizeof(T)) == 0);
    }
  }
}

// L with entries near 1, as from parallel keys with beta 1: powers of it reach 1e17, the solution stays of order one.
TEMPLATE_TEST_CASE("unit lower triangular solves invert the product", "[kda]", float, double) {
  using T = TestType;
  for (const double magnitude : {0.1, 0.999}) {
    std::vector<T> l(kRows * kRows, std::numeric_limits<T>::quiet_NaN());
    const std::vector<T> noise = random_values<T>(kRows * kRows, "tiles.l");
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < i; ++j) {
        l[static_cast<size_t>(i * kRows + j)] = static_cast<T>(magnitude) + T(1e-3) * noise[static_cast<size_t>(i * kRows + j)];
      }
    }
    const std::vector<T> x = random_values<T>(kRows * kColumns, "tiles.x");
    std::vector<T> lower = x, upper = x;
    tiles::product<Sum::BeforeRow, Into::Add, T>(kRows, kColumns, kRows, {l.data(), kRows, 1}, x.data(), kColumns,
                                                 lower.data(), kColumns);
    tiles::product<Sum::AfterRow, Into::Add, T>(kRows, kColumns, kRows, {l.data(), 1, kRows}, x.data(), kColumns,
                                                upper.data(), kColumns);
    tiles::solve_unit_lower<T>(kRows, kColumns, l.data(), kRows, lower.data(), kColumns);
    tiles::solve_unit_lower_transposed<T>(kRows, kColumns, l.data(), kRows, upper.data(), kColumns);
    for (size_t i = 0; i < x.size(); ++i) {
      const double bar = 2000 * static_cast<double>(std::numeric_limits<T>::epsilon());
      REQUIRE(std::abs(static_cast<double>(lower[i] - x[i])) < bar);
      REQUIRE(std::abs(static_cast<double>(upper[i] - x[i])) < bar);
    }
  }
}

TEST_CASE("transpose", "[kda]") {
  const std::vector<double> from = random_values<double>(16 * 24, "tiles.t");
  std::vector<double> to(24 * 16);
  tiles::transpose<double>(16, 24, from.data(), 24, to.data(), 16);
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 24; ++j) {
      REQUIRE(to[j * 16 + i] == from[i * 24 + j]);
    }
  }
}

TEST_CASE("panels are padded with zeros and written back without negative zeros", "[kda]") {
  const std::vector<double> from = {1, -0.0, 9, 3, 4, 9};  // two rows of two, three apart
  std::vector<double> storage(16 * 4, 7), to(6, 5);
  const kda::Panel<double> panel{storage.data(), 4};
  kda::load_panel(from.data(), 3, 2, 2, 16, panel);
  CHECK(std::vector<double>(storage.begin(), storage.begin() + 8) == std::vector<double>{1, 0, 0, 0, 3, 4, 0, 0});
  CHECK(std::count(storage.begin() + 8, storage.end(), 0.0) == 56);
  kda::store_panel(panel, 2, 2, to.data(), 3);
  CHECK(to == std::vector<double>{1, 0, 5, 3, 4, 5});
  CHECK(std::signbit(storage[1]));
  CHECK_FALSE(std::signbit(to[1]));
}

// 96 heads of 128 channels pass 2^31 elements at token 174763.
TEST_CASE("offsets do not wrap at 2^31 elements", "[kda]") {
  const kda::Dims dims{.tokens = 1 << 20, .heads = 96, .key_dim = 128, .value_dim = 128, .documents = 1};
  CHECK(dims.key_offset(174762, 95) == 2147487616);
  CHECK(dims.value_offset((1 << 20) - 1, 95) == int64_t{12884901888} - 128);
  CHECK(dims.state_offset(16383, 95) == int64_t{16384} * 96 * 128 * 128 - 128 * 128);
}

TEST_CASE("chunks do not straddle documents", "[kda]") {
  const std::vector<int64_t> bounds = {0, 65, 65, 193, 200};
  const kda::Dims dims{.tokens = 200, .heads = 1, .key_dim = 1, .value_dim = 1, .documents = 4};
  std::vector<std::vector<int64_t>> got;  // {document, chunk index, first token, rows, padded rows}
  kda::for_each_document("test", bounds.data(), dims, [&](const kda::Document& document) {
    for (int64_t c = 0; c < document.chunks(); ++c) {
      const kda::Chunk chunk = kda::chunk_of(document, c);
      got.push_back({document.index, chunk.index, chunk.first_token, chunk.rows, chunk.padded_rows()});
    }
  });
  const std::vector<std::vector<int64_t>> wanted = {
      {0, 0, 0, 64, 64}, {0, 1, 64, 1, 16}, {2, 2, 65, 64, 64}, {2, 3, 129, 64, 64}, {3, 4, 193, 7, 16}};
  CHECK(got == wanted);
  CHECK(std::ssize(got) <= kda_max_chunks(200, 4));
}

}  // namespace
}  // namespace longhaul
