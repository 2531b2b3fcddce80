// Small problems for the emulated kernels: inputs rounded to bf16, and results of the recurrence and its gradients in
// double, written from the definition (Kimi Linear, arXiv:2510.26692, eq. 1) without chunks. Test code only.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace longhaul::kda::cuda::testing {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;
using Halves = std::vector<uint16_t>;

// Softplus and later ones are gates without a bound: -exp(a) softplus(z) as Kimi Linear draws it, some down to -50; tokens that wipe the
// state (-1000) among usual ones; channels of every kind, from none to -1000 always.
enum class Kind : uint8_t { Usual, Saturated, NoDecay, ParallelKeys, Raw, Softplus, Wiped, Mixed };
[[nodiscard]] inline bool is_unbounded(Kind kind) { return kind >= Kind::Softplus; }

struct Problem {
  std::vector<int64_t> cu_seqlens;
  int64_t heads = 1;
  int64_t dim = 64;
  double scale = 1;
  Doubles q, k, v;       // [tokens, heads, dim], values of bf16
  Doubles g;             // [tokens, heads, dim], values of fp32
  Doubles beta;          // [tokens, heads], values of fp32
  Doubles initial;       // [documents, heads, dim, dim]
  Doubles gate, beta_logits, a_log, dt_bias;  // raw
  Doubles q_raw, k_raw;                       // raw

  [[nodiscard]] int64_t tokens() const { return cu_seqlens.back(); }
  [[nodiscard]] int64_t documents() const { return static_cast<int64_t>(cu_seqlens.size()) - 1; }
};

[[nodiscard]] Problem make_problem(const std::vector<int64_t>& lengths, int64_t heads, int64_t dim, Kind kind, unsigned seed);

struct ForwardResult {
  Doubles o;            // [tokens, heads, dim]
  Doubles final_state;  // [documents, heads, dim, dim]
};
[[nodiscard]] ForwardResult reference_forward(const Problem& p);

struct Gradients {
  Doubles dq, dk, dv, dg;  // [tokens, heads, dim]
  Doubles dbeta;           // [tokens, heads]
  Doubles dinitial;        // [documents, heads, dim, dim]
  Doubles da_log;          // [heads], raw
  Doubles ddt_bias;        // [heads, dim], raw
};
// Of <d_o, o> + <dfinal, final_state>.
[[nodiscard]] Gradients reference_backward(const Problem& p, const Doubles& d_o, const Doubles& dfinal);
// From these to the gradients of the raw inputs: of q_raw, k_raw, gate and beta_logits in place of q, k, g and beta.
[[nodiscard]] Gradients through_raw_inputs(const Problem& p, Gradients gradients);

[[nodiscard]] Halves to_halves(const Doubles& x);
[[nodiscard]] Doubles from_halves(const Halves& x);
[[nodiscard]] Floats to_floats(const Doubles& x);
[[nodiscard]] Doubles rounded_to_bf16(const Doubles& x);
[[nodiscard]] Doubles from_floats(const Floats& x);
// ||a - b|| / ||b||; infinite when a has a NaN.
[[nodiscard]] double relative_error(const Doubles& a, const Doubles& b);
[[nodiscard]] Doubles normal(size_t count, unsigned seed, double scale = 1);

}  // namespace longhaul::kda::cuda::testing
