// The router on the CPU. One pass over a token's experts keeps the best top_k + 1 biased scores in falling order; since
// experts come in ascending order and only a strictly larger score moves ahead, ties stay with the lower index. A NaN
// compares false with everything, so even then the routes are distinct valid experts.
#include "kernels/router/router_cpu.h"

#include <algorithm>
#include <limits>

#include "kernels/math/activations.h"

namespace longhaul::cpu {
namespace {

constexpr double kTiny = 1e-20;  // keeps the weights finite when every selected score underflows

// Fills best[0 .. kept) with the largest biased scores in falling order and best_index with their experts.
template <class T>
void select(const T* scores, const T* bias, int64_t experts, int64_t kept, T* best, int64_t* best_index) {
  int64_t count = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const T value = scores[e] + bias[e];
    if (count == kept && !(value > best[kept - 1])) {
      continue;
    }
    int64_t at = std::min(count, kept - 1);
    while (at > 0 && value > best[at - 1]) {
      best[at] = best[at - 1];
      best_index[at] = best_index[at - 1];
      --at;
    }
    best[at] = value;
    best_index[at] = e;
    count = std::min(count + 1, kept);
  }
}

void check_forced(const int32_t* routes, int64_t token, int64_t top_k, int64_t experts) {
  for (int64_t c = 0; c < top_k; ++c) {
    const bool repeated = std::find(routes, routes + c, routes[c]) != routes + c;
    if (routes[c] < 0 || routes[c] >= experts || repeated) {
      throw DataError("router_forward: forced_experts of token {} must be {} different experts below {}; choice {} is {}{}",
                      token, top_k, experts, c, routes[c], repeated ? ", which is there already" : "");
    }
  }
}

template <class T>
void forward(const RouterForward& op, T* best, int64_t* best_index) {
  const int64_t tokens = op.logits.size(0);
  const int64_t experts = op.logits.size(1);
  const int64_t top_k = op.top_k;
  const int64_t kept = std::min(top_k + 1, experts);
  for (int64_t t = 0; t < tokens; ++t) {
    const T* logits = op.logits.data<T>() + t * experts;
    T* scores = op.scores.data<T>() + t * experts;
    for (int64_t e = 0; e < experts; ++e) {
      scores[e] = math::sigmoid(logits[e]);
    }
    select(scores, op.bias.data<T>(), experts, kept, best, best_index);
    op.cutoff.data<T>()[t] = kept > top_k ? best[top_k] : -std::numeric_limits<T>::infinity();

    int32_t* routes = op.experts.data<int32_t>() + t * top_k;
    T* weights = op.weights.data<T>() + t * top_k;
    if (op.forced_experts.is_present()) {
      const int32_t* forced = op.forced_experts.data<int32_t>() + t * top_k;
      check_forced(forced, t, top_k, experts);
      std::copy_n(forced, top_k, routes);
    } else {
      std::transform(best_index, best_index + top_k, routes, [](int64_t e) { return static_cast<int32_t>(e); });
    }
    T total = static_cast<T>(kTiny);
    for (int64_t c = 0; c < top_k; ++c) {
      total += scores[routes[c]];
    }
    for (int64_t c = 0; c < top_k; ++c) {
      weights[c] = static_cast<T>(op.scaling) * scores[routes[c]] / total;
    }
  }
}

// ds_j = (scaling * dp_j - sum_r p_r dp_r) / sum_sel s for the selected experts; dlogit = ds * s * (1 - s).
template <class T>
void backward(const RouterBackward& op) {
  const int64_t tokens = op.scores.size(0);
  const int64_t experts = op.scores.size(1);
  const int64_t top_k = op.experts.size(1);
  for (int64_t t = 0; t < tokens; ++t) {
    const T* scores = op.scores.data<T>() + t * experts;
    const int32_t* routes = op.experts.data<int32_t>() + t * top_k;
    const T* weights = op.weights.data<T>() + t * top_k;
    const T* dweights = op.dweights.data<T>() + t * top_k;
    T* dlogits = op.dlogits.data<T>() + t * experts;
    std::fill_n(dlogits, experts, T{0});
    T total = static_cast<T>(kTiny);
    T shared = 0;
    for (int64_t c = 0; c < top_k; ++c) {
      total += scores[routes[c]];
      shared += weights[c] * dweights[c];
    }
    for (int64_t c = 0; c < top_k; ++c) {
      const T s = scores[routes[c]];
      dlogits[routes[c]] = (static_cast<T>(op.scaling) * dweights[c] - shared) / total * s * (T{1} - s);
    }
  }
}

}  // namespace

void router_forward(const RouterForward& op, const TensorView& best, const TensorView& best_index) {
  dispatch_float(op.logits.dtype(), "router_forward", [&](auto zero) {
    forward(op, best.data<decltype(zero)>(), best_index.data<int64_t>());
  });
}

void router_backward(const RouterBackward& op) {
  dispatch_float(op.scores.dtype(), "router_backward", [&](auto zero) { backward<decltype(zero)>(op); });
}

}  // namespace longhaul::cpu
