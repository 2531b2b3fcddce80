// The range that dense tiles need. A tile's decay E_ij = e^{G_i - G_j} is a product of two factors around its first row f, the
// causal anchor: e^{G_i - G_f} for rows and its reciprocal form e^{G_f - G_j} for columns. The first falls as far as the second
// rises, to e^{-bound (tile - 1)}, and the operands q, k times these must fit the type of the matrix product.
#pragma once

#include <cstdint>

#include "tools/decay_scan/problem.h"

namespace longhaul::decay {

struct FactorRange {
  double log_reciprocal = 0;  // natural logarithm of the largest reciprocal factor
  int64_t rows = 0;           // operands q e^{G_i - G_f} and k e^{G_i - G_f}
  int64_t columns = 0;        // operands k e^{G_f - G_j}
  int64_t underflows = 0;     // of rows: below the smallest normal number, while q or k itself is not
  int64_t overflows = 0;      // of columns: infinite in the precision, or a reciprocal beyond float, in which it is computed

  void add(const FactorRange& other);
};

// Over all tiles, documents and heads.
[[nodiscard]] FactorRange factor_range(const ScanProblem& problem, int64_t tile, Precision precision);

}  // namespace longhaul::decay
