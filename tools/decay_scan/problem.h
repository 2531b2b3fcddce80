// What the scan measures on: inputs of Kimi Delta Attention whose gates are the worst that a lower bound admits, and what the
// operator gives on them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/tensor.h"
#include "tools/decay_scan/precision.h"

namespace longhaul::decay {

// Inputs of one operator call and the gradients that backward starts from. All F64; q, k, v and d_o hold values of the
// precision, the others of float.
struct ScanProblem {
  std::string name;
  std::vector<int64_t> lengths;  // of the documents
  int64_t heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  double scale = 1;
  Tensor q, k;           // [tokens, heads, key_dim]
  Tensor v, d_o;         // [tokens, heads, value_dim]
  Tensor g;              // [tokens, heads, key_dim], log-decay <= 0
  Tensor beta;           // [tokens, heads]
  Tensor cu_seqlens;     // i64 [documents + 1]
  Tensor initial_state;  // [documents, heads, key_dim, value_dim]
  Tensor dfinal_state;   // [documents, heads, key_dim, value_dim]

  [[nodiscard]] int64_t tokens() const { return q.view().size(0); }
  [[nodiscard]] int64_t documents() const { return static_cast<int64_t>(lengths.size()); }
};

// Rounds what the operator holds in the precision to it, and the rest to float.
void round_inputs(ScanProblem& problem, Precision precision);
// v, d_o, the states and the scale, at random: what gates do not touch. Needs the sizes.
void fill_the_rest(ScanProblem& problem);

// Gates and keys that a bound must withstand. "At the bound" is the lower end of what the gate can give.
enum class Regime : uint8_t {
  AtBound,          // all gates at the bound
  None,             // all gates at zero: nothing decays
  Alternating,      // at the bound and at zero in turn
  LateRows,         // at the bound but for the last two rows of a tile, which so depend on each other fully through
                    // factors that have decayed the most
  Random,           // uniform between the bound and zero
  OneChannel,       // at the bound; keys and queries have one channel, which is 1
  Parallel,         // nearly parallel keys and beta near 1, nearly no decay
  ParallelAtBound,  // the same with all gates at the bound
};
constexpr auto enum_names(Regime) {
  return std::array<std::pair<Regime, std::string_view>, 8>{{{Regime::AtBound, "all at the bound"},
                                                             {Regime::None, "no decay"},
                                                             {Regime::Alternating, "alternating"},
                                                             {Regime::LateRows, "late rows"},
                                                             {Regime::Random, "random"},
                                                             {Regime::OneChannel, "one channel"},
                                                             {Regime::Parallel, "parallel keys"},
                                                             {Regime::ParallelAtBound, "parallel keys at the bound"}}};
}

// `tile` is where LateRows has its last rows. Documents have lengths that fill no tile or chunk.
[[nodiscard]] ScanProblem make_problem(Regime regime, double bound, int64_t tile, Precision precision);

// Results in the order of `Output`, row-major.
enum class Output : uint8_t { O, FinalState, DQ, DK, DV, DG, DBeta, DInitialState };
inline constexpr size_t kOutputs = 8;
inline constexpr std::array<std::string_view, kOutputs> kOutputNames{"o", "final state", "dq", "dk", "dv", "dg", "dbeta", "dinitial state"};
// How far each may be from fp64 relatively (root of the mean square): what flash-linear-attention asks of its bf16 kernels.
inline constexpr std::array<double, kOutputs> kOutputLimits{0.005, 0.005, 0.008, 0.008, 0.008, 0.02, 0.02, 0.008};
[[nodiscard]] constexpr bool is_forward(size_t output) { return output <= static_cast<size_t>(Output::FinalState); }

using Outputs = std::array<std::vector<double>, kOutputs>;
[[nodiscard]] inline std::vector<double>& get(Outputs& outputs, Output which) { return outputs[static_cast<size_t>(which)]; }
[[nodiscard]] inline const std::vector<double>& get(const Outputs& outputs, Output which) { return outputs[static_cast<size_t>(which)]; }

// The recurrence in double, and the gradients of <d_o, o> + <dfinal_state, final state> in double with pairwise tiles, which
// take no reciprocals.
[[nodiscard]] Outputs exact_outputs(const ScanProblem& problem);

// |got - wanted| / |wanted| of each output; infinite where `got` has a value that is not finite.
using Errors = std::array<double, kOutputs>;
[[nodiscard]] Errors errors_of(const Outputs& got, const Outputs& wanted);

}  // namespace longhaul::decay
