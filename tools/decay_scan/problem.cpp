// See problem.h.
#include "tools/decay_scan/problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "kernels/kda/kda.h"

namespace longhaul::decay {
namespace {

constexpr uint64_t kSeed = 2510;
// Of the synthetic problems: a long document and ragged ones; all widths that the fast kernels of a GPU serve.
const std::vector<int64_t> kLengths{129, 64, 17, 1, 39};
constexpr int64_t kHeads = 2;
constexpr int64_t kDim = 64;

enum class Stream : uint64_t { Q, K, V, G, Beta, InitialState, DO, DFinalState };

Tensor normal(Stream stream, const Shape& shape) {
  Tensor tensor(DType::F64, shape);
  const RandomStream random{.seed = kSeed, .stream = static_cast<uint64_t>(stream)};
  uint64_t index = 0;
  for (double& x : tensor.values<double>()) {
    x = random.normal(index++);
  }
  return tensor;
}

// Rows of the last dimension, of length 1.
void normalise_rows(const Tensor& tensor) {
  const auto values = tensor.values<double>();
  const auto n = static_cast<size_t>(tensor.view().size(-1));
  for (size_t row = 0; row < values.size(); row += n) {
    const auto one = values.subspan(row, n);
    const double norm = std::sqrt(std::inner_product(one.begin(), one.end(), one.begin(), 0.0) + 1e-6);
    std::for_each(one.begin(), one.end(), [norm](double& x) { x /= norm; });
  }
}

// One of four channels is 1, the others are 0.
void keep_one_channel(const Tensor& tensor) {
  const auto values = tensor.values<double>();
  const auto n = static_cast<size_t>(tensor.view().size(-1));
  for (size_t row = 0; row < values.size(); row += n) {
    const auto one = values.subspan(row, n);
    const size_t channel = static_cast<size_t>(std::max_element(one.begin(), one.begin() + 4) - one.begin());
    std::fill(one.begin(), one.end(), 0.0);
    one[channel] = 1;
  }
}

// Every key is the first one of its head and a little noise.
void make_parallel(const Tensor& keys) {
  const auto values = keys.values<double>();
  const auto row = static_cast<size_t>(keys.view().size(1) * keys.view().size(2));
  for (size_t i = row; i < values.size(); ++i) {
    values[i] = values[i % row] + 0.02 * values[i];
  }
}

double gate_of(Regime regime, double bound, int64_t position, int64_t tile, double uniform) {
  switch (regime) {
    case Regime::None: return 0;
    case Regime::Alternating: return position % 2 == 0 ? 0 : bound;
    case Regime::LateRows: return position % tile >= tile - 2 ? 0 : bound;
    case Regime::Random: return bound * uniform;
    case Regime::Parallel: return 1e-4 * bound * uniform;
    default: return bound;
  }
}

void fill_gates(const ScanProblem& p, Regime regime, double bound, int64_t tile) {
  const RandomStream random{.seed = kSeed, .stream = static_cast<uint64_t>(Stream::G)};
  const auto gates = p.g.values<double>();
  const int64_t row = p.heads * p.key_dim;
  size_t at = 0;
  for (const int64_t length : p.lengths) {
    for (int64_t i = 0; i < length * row; ++i, ++at) {
      gates[at] = gate_of(regime, bound, i / row, tile, static_cast<double>(random.uniform(at)));
    }
  }
}

Shape states_of(const ScanProblem& p, int64_t count) { return {count, p.heads, p.key_dim, p.value_dim}; }

std::vector<double> values_of(const Tensor& tensor) {
  const auto values = tensor.values<double>();
  return {values.begin(), values.end()};
}

}  // namespace

void fill_the_rest(ScanProblem& p) {
  const Shape values{p.tokens(), p.heads, p.value_dim};
  if (!p.v.view().is_present()) {
    p.v = normal(Stream::V, values);
  }
  p.d_o = normal(Stream::DO, values);
  p.initial_state = normal(Stream::InitialState, states_of(p, p.documents()));
  p.dfinal_state = normal(Stream::DFinalState, states_of(p, p.documents()));
  p.scale = 1 / std::sqrt(static_cast<double>(p.key_dim));
  std::vector<int64_t> bounds{0};
  for (const int64_t length : p.lengths) {
    bounds.push_back(bounds.back() + length);
  }
  p.cu_seqlens = Tensor::from(bounds, {p.documents() + 1});
}

void round_inputs(ScanProblem& p, Precision precision) {
  for (const Tensor* tensor : {&p.q, &p.k, &p.v, &p.d_o}) {
    for (double& x : tensor->values<double>()) {
      x = static_cast<double>(round_to(precision, static_cast<float>(x)));
    }
  }
  for (const Tensor* tensor : {&p.g, &p.beta, &p.initial_state, &p.dfinal_state}) {
    for (double& x : tensor->values<double>()) {
      x = static_cast<double>(static_cast<float>(x));
    }
  }
}

ScanProblem make_problem(Regime regime, double bound, int64_t tile, Precision precision) {
  ScanProblem p{.name = std::string(enum_names(regime)[static_cast<size_t>(regime)].second), .lengths = kLengths, .heads = kHeads, .key_dim = kDim, .value_dim = kDim};
  const int64_t tokens = std::accumulate(kLengths.begin(), kLengths.end(), int64_t{0});
  const Shape keys{tokens, kHeads, kDim};
  p.q = normal(Stream::Q, keys);
  p.k = normal(Stream::K, keys);
  p.g = Tensor(DType::F64, keys);
  p.beta = normal(Stream::Beta, {tokens, kHeads});
  const bool is_parallel = regime == Regime::Parallel || regime == Regime::ParallelAtBound;
  for (double& x : p.beta.values<double>()) {
    x = is_parallel ? 0.999 : 1 / (1 + std::exp(-1.5 * x));
  }
  if (is_parallel) {
    make_parallel(p.k);
  }
  if (regime == Regime::OneChannel) {
    keep_one_channel(p.q);
    keep_one_channel(p.k);
  }
  normalise_rows(p.q);
  normalise_rows(p.k);
  fill_gates(p, regime, bound, tile);
  fill_the_rest(p);
  round_inputs(p, precision);
  return p;
}

Outputs exact_outputs(const ScanProblem& p) {
  const Shape keys = p.q.view().shape(), values = p.v.view().shape();
  const Tensor o(DType::F64, values), state(DType::F64, states_of(p, p.documents()));
  ExecContext ctx = ExecContext::cpu();
  KdaForward forward{.q = p.q, .k = p.k, .v = p.v, .g = p.g, .beta = p.beta, .cu_seqlens = p.cu_seqlens, .scale = p.scale, .tiles = KdaTiles::Pairwise,
                     .initial_state = p.initial_state, .o = o, .final_state = state};
  kda_recurrent_forward(ctx, forward);
  Outputs out;
  get(out, Output::O) = values_of(o);
  get(out, Output::FinalState) = values_of(state);

  const Tensor chunk_states(DType::F64, states_of(p, kda_state_rows(p.tokens(), p.documents(), p.key_dim)));
  forward.chunk_states = chunk_states;
  kda_forward(ctx, forward);
  const Tensor dq(DType::F64, keys), dk(DType::F64, keys), dv(DType::F64, values), dg(DType::F64, keys), dbeta(DType::F64, p.beta.view().shape());
  kda_backward(ctx, {.d_o = p.d_o, .q = p.q, .k = p.k, .v = p.v, .g = p.g, .beta = p.beta, .cu_seqlens = p.cu_seqlens, .scale = p.scale,
                     .tiles = KdaTiles::Pairwise, .chunk_states = chunk_states, .dfinal_state = p.dfinal_state, .dq = dq, .dk = dk, .dv = dv, .dg = dg,
                     .dbeta = dbeta, .dinitial_state = state});
  get(out, Output::DQ) = values_of(dq);
  get(out, Output::DK) = values_of(dk);
  get(out, Output::DV) = values_of(dv);
  get(out, Output::DG) = values_of(dg);
  get(out, Output::DBeta) = values_of(dbeta);
  get(out, Output::DInitialState) = values_of(state);
  return out;
}

Errors errors_of(const Outputs& got, const Outputs& wanted) {
  Errors errors{};
  for (size_t output = 0; output < kOutputs; ++output) {
    LH_CHECK(got[output].size() == wanted[output].size(), "{}: {} values, wanted {}", kOutputNames[output], got[output].size(), wanted[output].size());
    double square = 0, norm = 0;
    for (size_t i = 0; i < wanted[output].size(); ++i) {
      const double error = got[output][i] - wanted[output][i];
      square += error * error;
      norm += wanted[output][i] * wanted[output][i];
    }
    errors[output] = !std::isfinite(square) ? INFINITY : square == 0 ? 0 : std::sqrt(square / std::max(norm, 1e-300));
  }
  return errors;
}

}  // namespace longhaul::decay
