// The arithmetic of load balancing, on plain numbers: quantiles of routing margins, updates of a bias, load measures.
// Everything is computed in double in a fixed order from integers or sorted values, so equal statistics give equal bits.
//
// Signs: routes are the top_k of score + bias, a token's cutoff is its (top_k + 1)-th biased score, and the margin
// r = cutoff - score is the bias at which the expert would just be chosen. The expert gets its share of the tokens when
// its bias is the (top_k / experts)-quantile of its margins (Kimi K3, arXiv:2607.24653, appendix D).
#pragma once

#include <cstdint>
#include <span>

#include "base/cast.h"

namespace longhaul {

// How many tokens each expert should get, tokens * top_k / experts, kept as an exact fraction.
struct Quota {
  int64_t routes = 0;  // tokens * top_k
  int64_t experts = 1;

  [[nodiscard]] double value() const noexcept { return static_cast<double>(routes) / static_cast<double>(experts); }
  [[nodiscard]] int64_t rounded_up() const noexcept { return ceil_div(routes, experts); }
  [[nodiscard]] bool is_whole() const noexcept { return routes % experts == 0; }
};

// The margin at rank `quota` from counts on uniform bins of [low, high]: the first bin whose cumulative count reaches
// the rounded-up quota, linear within it. Needs 0 < quota <= sum of counts.
[[nodiscard]] double histogram_quantile(std::span<const int64_t> counts, double low, double high, Quota quota);

// The margin at rank `quota` from all margins, which are reordered. A whole quota q leaves the interval from the q-th to
// the (q + 1)-th value open, and its midpoint is taken; a fractional one takes the rounded-up rank. Needs
// 0 < quota < number of margins.
[[nodiscard]] double exact_quantile(std::span<double> margins, Quota quota);

// bias = ema * bias + (1 - ema) * quantiles, then centred to mean zero.
void update_by_quantiles(std::span<double> bias, std::span<const double> quantiles, double ema);

// bias += step * sign(mean load - load), then centred to mean zero.
void update_by_sign(std::span<double> bias, std::span<const int64_t> load, double step);

// The interval that holds every margin under this bias, because scores lie in (0, 1): [min b - 1, max b + 1].
struct MarginBounds {
  double low = -1;
  double high = 1;
};
[[nodiscard]] MarginBounds margin_bounds(std::span<const double> bias);

// Routes to the experts of one router over some tokens.
struct LoadSummary {
  int64_t max = 0;
  int64_t min = 0;
  double mean = 0;

  // How far the busiest expert is above the mean, max / mean - 1, and the idlest below it. 0 without tokens.
  [[nodiscard]] double max_violation() const noexcept { return mean > 0 ? static_cast<double>(max) / mean - 1 : 0; }
  [[nodiscard]] double min_violation() const noexcept { return mean > 0 ? 1 - static_cast<double>(min) / mean : 0; }
};
[[nodiscard]] LoadSummary summarise_load(std::span<const int64_t> load);

}  // namespace longhaul
