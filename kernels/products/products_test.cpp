// Row products: right, and independent of the rows beside; gradient products: exact sums in double.
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

#include "device/blas.h"
#include "kernels/products/gradient_product.h"
#include "kernels/products/row_kernel.h"
#include "kernels/products/row_product.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"

using namespace longhaul;
using namespace longhaul::testing;

namespace {

template <class T>
Tensor product(const TensorView& a, const TensorView& w, cpu::RightFactor right, Accumulate accumulate = Accumulate::Overwrite) {
  const int64_t n = right == cpu::RightFactor::Plain ? w.size(1) : w.size(0);
  const int64_t k = a.size(1);
  Tensor c(kDTypeOf<T>, {a.size(0), n});
  std::fill_n(c.view().data<T>(), c.view().numel(), accumulate == Accumulate::Add ? T{1} : static_cast<T>(NAN));
  const Tensor panel(kDTypeOf<T>, {k, cpu::kPanelColumns});
  cpu::row_product<T>({.rows = a.size(0), .n = n, .k = k, .a = a.data<T>(), .lda = a.stride(0), .w = w.data<T>(), .ldw = w.stride(0),
                       .right = right, .c = c.view().data<T>(), .ldc = n, .accumulate = accumulate, .panel = panel.view().data<T>()});
  return c;
}

}  // namespace

TEST_CASE("row_product agrees with plain sums for ragged sizes", "[products]") {
  for (const int64_t rows : {0, 1, 5, 6, 7, 13}) {
    for (const int64_t n : {1, 15, 16, 17, 40}) {
      for (const int64_t k : {0, 1, 7, 33}) {
        const Tensor a = random_tensor(DType::F64, {rows, k}, "a");
        const Tensor w = random_tensor(DType::F64, {n, k}, "w");
        const Tensor wt = random_tensor(DType::F64, {k, n}, "wt");
        const Tensor c = product<double>(a, w, cpu::RightFactor::Transposed);
        const Tensor d = product<double>(a, wt, cpu::RightFactor::Plain, Accumulate::Add);
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double first = 0, second = 1;
            for (int64_t p = 0; p < k; ++p) {
              first += a.view().data<double>()[i * k + p] * w.view().data<double>()[j * k + p];
              second += a.view().data<double>()[i * k + p] * wt.view().data<double>()[p * n + j];
            }
            CHECK(std::abs(c.view().data<double>()[i * n + j] - first) < 1e-13);
            CHECK(std::abs(d.view().data<double>()[i * n + j] - second) < 1e-13);
          }
        }
      }
    }
  }
}

TEST_CASE("an element is a chain of fused multiply-adds, whatever rows are beside it", "[products]") {
  const int64_t n = 37, k = 65;
  const Tensor a = random_tensor(DType::F32, {100, k}, "a");
  const Tensor w = random_tensor(DType::F32, {n, k}, "w");
  const Tensor all = product<float>(a, w, cpu::RightFactor::Transposed);
  for (const int64_t first : {0, 1, 5, 50}) {
    for (const int64_t rows : {1, 2, 3, 6, 11, 50}) {
      const Tensor part = product<float>(a.view().slice(0, first, first + rows), w, cpu::RightFactor::Transposed);
      CHECK(bitwise_equal(part, all.view().slice(0, first, first + rows)));
    }
  }
  for (int64_t i = 0; i < 100; i += 9) {
    for (int64_t j = 0; j < n; ++j) {
      float chain = 0;
      for (int64_t p = 0; p < k; ++p) {
        chain = std::fma(a.view().data<float>()[i * k + p], w.view().data<float>()[j * k + p], chain);
      }
      CHECK(all.view().data<float>()[i * n + j] == chain);
    }
  }
}

TEMPLATE_TEST_CASE("all instruction sets give the same bits", "[products]", float, double) {
  const int64_t k = 53;
  const Tensor a = random_tensor(kDTypeOf<TestType>, {cpu::kMaxKernelRows, k}, "a");
  const Tensor panel = random_tensor(kDTypeOf<TestType>, {k, cpu::kPanelColumns}, "panel");
  const auto sums = [&](const cpu::RowKernel<TestType>& kernel, int64_t rows) {
    std::vector<TestType> out(static_cast<size_t>(rows * cpu::kPanelColumns));
    kernel.multiply(rows, a.view().data<TestType>(), k, panel.view().data<TestType>(), k, out.data());
    return out;
  };
  const cpu::RowKernel<TestType> portable = cpu::portable_row_kernel<TestType>();
  std::vector<cpu::RowKernel<TestType>> others{cpu::best_row_kernel<TestType>()};
  if (cpu::avx2_row_kernel<TestType>().multiply != nullptr) {
    others.push_back(cpu::avx2_row_kernel<TestType>());
  }
  for (const auto& kernel : others) {
    for (int64_t rows = 1; rows <= kernel.max_rows; ++rows) {
      CHECK(sums(kernel, rows) == sums(portable, rows));
    }
  }
}

TEST_CASE("gradient_product does not depend on how tokens are split, to double rounding", "[products]") {
  const int64_t tokens = 700, out = 9, in = 12;
  const Tensor dy = random_tensor(DType::F32, {tokens, out}, "dy");
  const Tensor x = random_tensor(DType::F32, {tokens, in}, "x");
  const auto gradient = [&](int64_t step) {
    Tensor dweight = Tensor::zeros(DType::F64, {out, in});
    Arena arena(Device{}, "scratch", 0, Arena::Growth::Chunked);
    const TensorView scratch = cpu::take_gradient_scratch(arena, DType::F32, tokens, out, in);
    for (int64_t first = 0; first < tokens; first += step) {
      cpu::gradient_product<float>({.rows = std::min(step, tokens - first), .out = out, .in = in, .dy = dy.view().data<float>() + first * out,
                                    .ldy = out, .x = x.view().data<float>() + first * in, .ldx = in,
                                    .dweight = dweight.view().data<double>(), .scratch = scratch});
    }
    return dweight;
  };
  const Tensor whole = gradient(tokens);
  CHECK(difference(gradient(1), whole).relative_l2 < 1e-15);
  CHECK(difference(gradient(37), whole).relative_l2 < 1e-15);
}

TEST_CASE("row_product speed beside BLAS", "[.bench]") {
  blas::set_threads(1);
  for (const auto& [rows, n, k] : {std::array<int64_t, 3>{1024, 64, 64}, {1024, 192, 64}, {1024, 64, 192}, {128, 64, 32}, {1024, 257, 64}, {1024, 512, 512}}) {
    const Tensor a = random_tensor(DType::F32, {rows, k}, "a");
    const Tensor w = random_tensor(DType::F32, {n, k}, "w");
    const Tensor c(DType::F32, {rows, n});
    const Tensor panel(DType::F32, {k, cpu::kPanelColumns});
    const auto rate = [&](auto&& fn) {
      fn();
      const auto start = std::chrono::steady_clock::now();
      const int repeats = 50;
      for (int i = 0; i < repeats; ++i) {
        fn();
      }
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      return 2e-9 * static_cast<double>(rows * n * k) * repeats / seconds;
    };
    const double own = rate([&] {
      cpu::row_product<float>({.rows = rows, .n = n, .k = k, .a = a.view().data<float>(), .lda = k, .w = w.view().data<float>(), .ldw = k,
                               .c = c.view().data<float>(), .ldc = n, .panel = panel.view().data<float>()});
    });
    const double library = rate([&] {
      blas::gemm(blas::Transpose::No, blas::Transpose::Yes, rows, n, k, 1.0f, a.view().data<float>(), k, w.view().data<float>(), k, 0.0f,
                 c.view().data<float>(), n);
    });
    fmt::print("[{}, {}] x [{}, {}]: row_product {:.1f} GFLOP/s, BLAS {:.1f}\n", rows, k, k, n, own, library);
  }
}
