// Test problems for causal attention: random inputs, poisoned outputs, calls with one line each, and the definition
// written out naively. Test code only.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/op_test.h"

namespace longhaul::testing {

struct AttentionSizes {
  std::vector<int64_t> lengths = {64};
  int64_t heads = 2;
  int64_t key_dim = 16;
  int64_t value_dim = 16;

  [[nodiscard]] int64_t tokens() const {
    int64_t sum = 0;
    for (const int64_t length : lengths) {
      sum += length;
    }
    return sum;
  }
};

struct AttentionProblem {
  AttentionSizes sizes;
  double scale = 1;
  Tensor q, k, v, cu_seqlens;

  explicit AttentionProblem(const AttentionSizes& s, DType dtype = DType::F64)
      : sizes(s),
        scale(1 / std::sqrt(static_cast<double>(s.key_dim))),
        q(random_tensor(dtype, {s.tokens(), s.heads, s.key_dim}, "attention.q")),
        k(random_tensor(dtype, {s.tokens(), s.heads, s.key_dim}, "attention.k")),
        v(random_tensor(dtype, {s.tokens(), s.heads, s.value_dim}, "attention.v")),
        cu_seqlens(cu_seqlens_of(s.lengths)) {}
  AttentionProblem() = default;

  // Tokens [begin, begin + length) as one document.
  [[nodiscard]] AttentionProblem document(int64_t begin, int64_t length) const {
    AttentionProblem p;
    p.sizes = sizes;
    p.sizes.lengths = {length};
    p.scale = scale;
    p.q = rows(q, begin, begin + length);
    p.k = rows(k, begin, begin + length);
    p.v = rows(v, begin, begin + length);
    p.cu_seqlens = cu_seqlens_of({length});
    return p;
  }

  // Rows [begin, end) of dimension 0 of a contiguous tensor, copied.
  [[nodiscard]] static Tensor rows(const TensorView& view, int64_t begin, int64_t end) {
    const TensorView from = view.slice(0, begin, end);
    Tensor to(view.dtype(), from.shape());
    if (from.numel() > 0) {
      std::memcpy(to.view().raw(), from.raw(), static_cast<size_t>(from.bytes()));
    }
    return to;
  }
};

// A tensor of any type with all bits set: NaN in f32, f64 and bf16.
[[nodiscard]] inline Tensor all_bits_set(DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  if (shape.numel() > 0) {
    std::memset(tensor.view().raw(), 0xff, static_cast<size_t>(tensor.view().bytes()));
  }
  return tensor;
}

struct AttentionResult {
  Tensor o, lse;
};
[[nodiscard]] inline AttentionResult run(const AttentionProblem& p, ExecContext& ctx) {
  const DType dtype = p.q.view().dtype();
  AttentionResult r{.o = poisoned(dtype, p.v.view().shape()),
                    .lse = poisoned(dtype, {p.sizes.tokens(), p.sizes.heads})};
  attention_forward(
      ctx, {.q = p.q, .k = p.k, .v = p.v, .cu_seqlens = p.cu_seqlens, .scale = p.scale, .o = r.o, .lse = r.lse});
  return r;
}
[[nodiscard]] inline AttentionResult run(const AttentionProblem& p) {
  ExecContext ctx = ExecContext::cpu();
  return run(p, ctx);
}

struct AttentionGradients {
  Tensor dq, dk, dv;
};
[[nodiscard]] inline AttentionGradients run_backward(const AttentionProblem& p, const TensorView& d_o, ExecContext& ctx) {
  const DType dtype = p.q.view().dtype();
  const AttentionResult forward = run(p, ctx);
  AttentionGradients r{.dq = poisoned(dtype, p.q.view().shape()),
                       .dk = poisoned(dtype, p.k.view().shape()),
                       .dv = poisoned(dtype, p.v.view().shape())};
  attention_backward(ctx, {.d_o = d_o,
                           .q = p.q,
                           .k = p.k,
                           .v = p.v,
                           .o = forward.o,
                           .lse = forward.lse,
                           .cu_seqlens = p.cu_seqlens,
                           .scale = p.scale,
                           .dq = r.dq,
                           .dk = r.dk,
                           .dv = r.dv});
  return r;
}
[[nodiscard]] inline AttentionGradients run_backward(const AttentionProblem& p, const TensorView& d_o) {
  ExecContext ctx = ExecContext::cpu();
  return run_backward(p, d_o, ctx);
}

// The definition, in double and without tiles.
[[nodiscard]] inline AttentionResult run_naive(const AttentionProblem& p) {
  AttentionResult r{.o = Tensor::zeros(DType::F64, p.v.view().shape()),
                    .lse = Tensor::zeros(DType::F64, {p.sizes.tokens(), p.sizes.heads})};
  const std::vector<double> q = to_doubles(p.q), k = to_doubles(p.k), v = to_doubles(p.v);
  const int64_t heads = p.sizes.heads, key = p.sizes.key_dim, value = p.sizes.value_dim;
  const auto at = [](const std::vector<double>& x, int64_t i) { return x[static_cast<size_t>(i)]; };
  int64_t begin = 0;
  for (const int64_t length : p.sizes.lengths) {
    for (int64_t t = begin; t < begin + length; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        std::vector<double> scores;
        double largest = -INFINITY;
        for (int64_t s = begin; s <= t; ++s) {
          double score = 0;
          for (int64_t c = 0; c < key; ++c) {
            score += at(q, (t * heads + h) * key + c) * at(k, (s * heads + h) * key + c);
          }
          scores.push_back(score * p.scale);
          largest = std::max(largest, scores.back());
        }
        double sum = 0;
        for (double& score : scores) {
          score = std::exp(score - largest);
          sum += score;
        }
        for (int64_t s = begin; s <= t; ++s) {
          for (int64_t c = 0; c < value; ++c) {
            r.o.values<double>()[static_cast<size_t>((t * heads + h) * value + c)] +=
                at(scores, s - begin) / sum * at(v, (s * heads + h) * value + c);
          }
        }
        r.lse.values<double>()[static_cast<size_t>(t * heads + h)] = largest + std::log(sum);
      }
    }
    begin += length;
  }
  return r;
}

}  // namespace longhaul::testing
