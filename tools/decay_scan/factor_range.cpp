// See factor_range.h.
#include "tools/decay_scan/factor_range.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace longhaul::decay {

void FactorRange::add(const FactorRange& other) {
  log_reciprocal = std::max(log_reciprocal, other.log_reciprocal);
  rows += other.rows;
  columns += other.columns;
  underflows += other.underflows;
  overflows += other.overflows;
}

FactorRange factor_range(const ScanProblem& p, int64_t tile, Precision precision) {
  FactorRange range;
  const auto q = p.q.values<double>(), k = p.k.values<double>(), g = p.g.values<double>();
  const int64_t row = p.heads * p.key_dim;
  const double tiny = smallest_normal_of(precision), huge = overflow_of(precision);
  std::vector<double> sums(static_cast<size_t>(row));  // log-decay from the tile's first row
  int64_t token = 0;
  for (const int64_t length : p.lengths) {
    for (int64_t i = 0; i < length; ++i, ++token) {
      for (int64_t c = 0; c < row; ++c) {
        const auto at = static_cast<size_t>(token * row + c);
        double& sum = sums[static_cast<size_t>(c)];
        sum = i % tile == 0 ? 0 : sum + g[at];
        const double decay = std::exp(sum), reciprocal = std::exp(-sum);
        const auto is_lost = [&](double x) { return std::abs(x) >= tiny && std::abs(x) * decay < tiny; };
        range.log_reciprocal = std::max(range.log_reciprocal, -sum);
        range.underflows += (is_lost(q[at]) ? 1 : 0) + (is_lost(k[at]) ? 1 : 0);
        // A decay that float flushes to zero has an infinite reciprocal.
        const bool is_beyond_float = decay < static_cast<double>(std::numeric_limits<float>::min());
        range.overflows += k[at] != 0 && (is_beyond_float || std::abs(k[at]) * reciprocal >= huge) ? 1 : 0;
      }
    }
  }
  range.rows = 2 * token * row;
  range.columns = token * row;
  return range;
}

}  // namespace longhaul::decay
