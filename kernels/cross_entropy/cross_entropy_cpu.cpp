// For each chunk of tokens: logits by one product, loss and the gradient of the logits in place row by row, then the two
// products of the backward pass. The loss is summed in double in token order; logits do not depend on the chunk size.
#include "kernels/cross_entropy/cross_entropy_cpu.h"

#include <algorithm>
#include <cmath>

#include "base/profile.h"
#include "kernels/math/fast_math.h"
#include "kernels/math/lane_sum.h"
#include "kernels/products/gradient_product.h"
#include "kernels/products/row_product.h"

namespace longhaul::cpu {
namespace {

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
void run(const LinearCrossEntropy& op, const CrossEntropyScratch& scratch) {
  const int64_t tokens = op.x.size(0);
  const int64_t hidden = op.x.size(1);
  const int64_t vocab = op.weight.size(0);
  const bool wants_gradient = op.dx.is_present() || op.dweight.is_present();
  const RowResult result = wants_gradient ? RowResult::LossAndGradient : RowResult::Loss;
  const auto factor = static_cast<T>(op.grad_scale);
  const int32_t* targets = op.targets.data<int32_t>();
  const T* weight = op.weight.data<T>();
  T* chunk_logits = scratch.logits.data<T>();
  T* panel = scratch.panel.data<T>();
  double loss = 0;
  for (int64_t begin = 0; begin < tokens; begin += op.chunk_tokens) {
    const int64_t rows = std::min(op.chunk_tokens, tokens - begin);
    const T* x = op.x.data<T>() + begin * hidden;
    row_product<T>({.rows = rows, .n = vocab, .k = hidden, .a = x, .lda = hidden, .w = weight, .ldw = hidden, .right = RightFactor::Transposed,
                    .c = chunk_logits, .ldc = vocab, .panel = panel});
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
      row_product<T>({.rows = rows, .n = hidden, .k = vocab, .a = chunk_logits, .lda = vocab, .w = weight, .ldw = hidden,
                      .right = RightFactor::Plain, .c = op.dx.data<T>() + begin * hidden, .ldc = hidden, .panel = panel});
    }
    if (op.dweight.is_present()) {
      gradient_product<T>({.rows = rows, .out = vocab, .in = hidden, .dy = chunk_logits, .ldy = vocab, .x = x, .ldx = hidden,
                           .dweight = op.dweight.data<double>(), .scratch = scratch.wide});
    }
  }
  *op.loss_sum.data<double>() += loss;
}

}  // namespace

void linear_cross_entropy(const LinearCrossEntropy& op, const CrossEntropyScratch& scratch) {
  const ProfileScope profile("head");
  check_targets(op.targets, op.weight.size(0));
  dispatch_float(op.x.dtype(), "linear_cross_entropy", [&](auto zero) { run<decltype(zero)>(op, scratch); });
}

}  // namespace longhaul::cpu
