// Test problems for Kimi Delta Attention: inputs in the ranges that the layer produces, outputs poisoned with NaN, and
// calls with one line each. Test code only.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "kernels/kda/kda.h"
#include "kernels/op_test.h"

namespace longhaul::testing {

struct KdaSizes {
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
  [[nodiscard]] int64_t documents() const { return narrow<int64_t>(lengths.size()); }
};

// Inputs in double; `in` gives them in another type.
struct KdaProblem {
  KdaSizes sizes;
  KdaTiles tiles = KdaTiles::Dense;
  double scale = 1;
  Tensor q, k, v, g, beta, cu_seqlens, initial_state;

  // Unit q and k, normal v, g = -5 sigmoid(normal - 1), beta = sigmoid(normal), a normal initial state.
  explicit KdaProblem(const KdaSizes& s, KdaTiles t = KdaTiles::Dense);
  KdaProblem() = default;

  [[nodiscard]] KdaProblem in(DType dtype) const;
  // Tokens [begin, begin + length) as one document, with document `state` of the initial states.
  [[nodiscard]] KdaProblem document(int64_t begin, int64_t length, int64_t state) const;
};

struct KdaResult {
  Tensor o, final_state, chunk_states;
};
[[nodiscard]] KdaResult run_chunkwise(const KdaProblem& p);
[[nodiscard]] KdaResult run_chunkwise(const KdaProblem& p, ExecContext& ctx);
[[nodiscard]] KdaResult run_recurrent(const KdaProblem& p);

struct KdaGradients {
  Tensor dq, dk, dv, dg, dbeta, dinitial_state;
};
// Of the loss <d_o, o> + <dfinal_state, final_state>; an absent dfinal_state is zero.
[[nodiscard]] KdaGradients run_backward(const KdaProblem& p, const TensorView& d_o, const TensorView& dfinal_state);
[[nodiscard]] KdaGradients run_backward(const KdaProblem& p, const TensorView& d_o, const TensorView& dfinal_state, ExecContext& ctx);

// Rows [begin, end) of dimension 0, copied.
[[nodiscard]] Tensor rows_of(const Tensor& tensor, int64_t begin, int64_t end);

}  // namespace longhaul::testing
