// For each chunk of tokens: logits by one product, loss and the gradient of the logits in place row by row, then the two
// products of the backward pass. The loss is summed in double in token order, so the chunk size changes only how BLAS
// rounds the logits.
#include "kernels/cross_entropy/cross_entropy_cpu.h"

#include <algorithm>
#include <cmath>

#include "device/blas.h"
#include "kernels/math/fast_math.h"
#include "kernels/math/lane_sum.h"

namespace longhaul::cpu {
namespace {

using blas::Transpose;

void check_targets(const TensorView& targets, int64_t vocab) {
  const int32_t* target = targets.data<int32_t>();
  for (int64_t t = 0; t < targets.size(0); ++t) {
    if (target[t] != kIgnoredTarget && (target[t] < 0 || target[t] >= vocab)) {
      throw DataError("linear_cross_entropy: token {} has target {}, but the vocabulary has {} entries (and {} means no "
                      "target); check that the data was prepared with the tokenizer of this model",
                      t, target[t], vocab, kIgnoredTarget);
    }
  }
}

// Eight interleaved maxima, so that the loop vectorises; the result does not depend on the order.
template <class T>
T largest(const T* values, int64_t n) {
  constexpr int64_t kLanes = 8;
  T lanes[kLanes];
  std::fill_n(lanes, kLanes, values[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  for (int64_t lane = 0; i + lane < n; ++lane) {
    lanes[lane] = std::max(lanes[lane], values[i + lane]);
  }
  return *std::max_element(lanes, lanes + kLanes);
}

// Returns -log softmax(row)[target]. With LossAndGradient the row becomes factor * (softmax(row) - onehot(target)).
enum class RowResult : uint8_t { Loss, LossAndGradient };

template <class T>
double cross_entropy_row(T* row, int64_t vocab, int64_t target, T factor, RowResult result) {
  const T top = largest(row, vocab);
  const double chosen = static_cast<double>(row[target]) - static_cast<double>(top);
  if (result == RowResult::Loss) {
    return std::log(math::lane_sum(vocab, [&](int64_t i) { return math::exp(row[i] - top); })) - chosen;
  }
#pragma omp simd
  for (int64_t i = 0; i < vocab; ++i) {
    row[i] = math::exp(row[i] - top);
  }
  const double sum = math::lane_sum(vocab, [&](int64_t i) { return row[i]; });
  const T scale = static_cast<T>(static_cast<double>(factor) / sum);
#pragma omp simd
  for (int64_t i = 0; i < vocab; ++i) {
    row[i] *= scale;
  }
  row[target] -= factor;
  return std::log(sum) - chosen;
}

template <class T>
void run(const LinearCrossEntropy& op, const TensorView& logits) {
  const int64_t tokens = op.x.size(0);
  const int64_t hidden = op.x.size(1);
  const int64_t vocab = op.weight.size(0);
  const bool wants_gradient = op.dx.is_present() || op.dweight.is_present();
  const RowResult result = wants_gradient ? RowResult::LossAndGradient : RowResult::Loss;
  const auto factor = static_cast<T>(op.grad_scale);
  const int32_t* targets = op.targets.data<int32_t>();
  const T* weight = op.weight.data<T>();
  T* chunk_logits = logits.data<T>();
  double loss = 0;
  for (int64_t begin = 0; begin < tokens; begin += op.chunk_tokens) {
    const int64_t rows = std::min(op.chunk_tokens, tokens - begin);
    const T* x = op.x.data<T>() + begin * hidden;
    blas::gemm(Transpose::No, Transpose::Yes, rows, vocab, hidden, T{1}, x, hidden, weight, hidden, T{0}, chunk_logits, vocab);
    for (int64_t row = 0; row < rows; ++row) {
      T* row_logits = chunk_logits + row * vocab;
      const int32_t target = targets[begin + row];
      if (target != kIgnoredTarget) {
        loss += cross_entropy_row(row_logits, vocab, target, factor, result);
      } else if (wants_gradient) {
        std::fill_n(row_logits, vocab, T{0});
      }
    }
    if (op.dx.is_present()) {
      blas::gemm(Transpose::No, Transpose::No, rows, hidden, vocab, T{1}, chunk_logits, vocab, weight, hidden, T{0},
                 op.dx.data<T>() + begin * hidden, hidden);
    }
    if (op.dweight.is_present()) {
      blas::gemm(Transpose::Yes, Transpose::No, vocab, hidden, rows, T{1}, chunk_logits, vocab, x, hidden, T{1},
                 op.dweight.data<T>(), hidden);
    }
  }
  *op.loss_sum.data<double>() += loss;
}

}  // namespace

void linear_cross_entropy(const LinearCrossEntropy& op, const TensorView& logits) {
  check_targets(op.targets, op.weight.size(0));
  dispatch_float(op.x.dtype(), "linear_cross_entropy", [&](auto zero) { run<decltype(zero)>(op, logits); });
}

}  // namespace longhaul::cpu
