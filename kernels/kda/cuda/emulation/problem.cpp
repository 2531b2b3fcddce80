// See problem.h.
#include "kernels/kda/cuda/emulation/problem.h"

#include <bit>
#include <limits>
#include <utility>

namespace longhaul::kda::cuda::testing {
namespace {

uint16_t bf16_of(double x) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}
double value_of(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// x / sqrt(sum x^2 + 1e-6) over rows of `dim`.
Doubles normalised(const Doubles& x, int64_t dim) {
  Doubles y = x;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(dim)) {
    double square = 1e-6;
    for (size_t c = 0; c < static_cast<size_t>(dim); ++c) {
      square += x[row + c] * x[row + c];
    }
    for (size_t c = 0; c < static_cast<size_t>(dim); ++c) {
      y[row + c] /= std::sqrt(square);
    }
  }
  return y;
}

}  // namespace

Doubles normal(size_t count, unsigned seed, double scale) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> distribution;
  Doubles x(count);
  for (double& value : x) {
    value = scale * distribution(engine);
  }
  return x;
}

Halves to_halves(const Doubles& x) {
  Halves y;
  for (const double value : x) {
    y.push_back(bf16_of(value));
  }
  return y;
}
Doubles from_halves(const Halves& x) {
  Doubles y;
  for (const uint16_t value : x) {
    y.push_back(value_of(value));
  }
  return y;
}
Doubles rounded_to_bf16(const Doubles& x) { return from_halves(to_halves(x)); }
Floats to_floats(const Doubles& x) { return {x.begin(), x.end()}; }
Doubles from_floats(const Floats& x) { return {x.begin(), x.end()}; }

double relative_error(const Doubles& a, const Doubles& b) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (std::isnan(a[i])) {
      return std::numeric_limits<double>::infinity();
    }
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

Problem make_problem(const std::vector<int64_t>& lengths, int64_t heads, int64_t dim, Kind kind, unsigned seed) {
  Problem p;
  p.cu_seqlens = {0};
  for (const int64_t length : lengths) {
    p.cu_seqlens.push_back(p.cu_seqlens.back() + length);
  }
  p.heads = heads;
  p.dim = dim;
  p.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
  const auto rows = static_cast<size_t>(p.tokens() * heads);
  const size_t n = rows * static_cast<size_t>(dim);
  p.q = normal(n, seed + 1);
  p.k = normal(n, seed + 2);
  p.v = rounded_to_bf16(normal(n, seed + 3));
  p.gate = rounded_to_bf16(normal(n, seed + 4, 1.5));
  p.beta_logits = rounded_to_bf16(normal(rows, seed + 5, 1.5));
  p.a_log = from_floats(to_floats(normal(static_cast<size_t>(heads), seed + 6, 0.3)));
  p.dt_bias = from_floats(to_floats(normal(static_cast<size_t>(heads * dim), seed + 7, 0.5)));
  p.initial = from_floats(to_floats(normal(static_cast<size_t>(p.documents() * heads * dim * dim), seed + 8, 0.3)));
  if (kind == Kind::ParallelKeys) {
    for (size_t i = 0; i < n; ++i) {
      p.k[i] = p.k[i % static_cast<size_t>(heads * dim)] + 0.02 * p.k[i];
    }
  }
  p.q_raw = rounded_to_bf16(p.q);
  p.k_raw = rounded_to_bf16(p.k);
  p.q = normalised(kind == Kind::Raw ? p.q_raw : p.q, dim);
  p.k = normalised(kind == Kind::Raw ? p.k_raw : p.k, dim);
  if (kind != Kind::Raw) {
    p.q = rounded_to_bf16(p.q);
    p.k = rounded_to_bf16(p.k);
  }
  for (size_t i = 0; i < n; ++i) {
    const size_t channel = i % static_cast<size_t>(heads * dim);
    const size_t head = channel / static_cast<size_t>(dim);
    double g = -5 * sigmoid(p.gate[i] - 1);
    switch (kind) {
      case Kind::Usual: break;
      case Kind::Saturated: g = i / n > 2 || i % 7 != 0 ? -5 : g; break;
      case Kind::NoDecay: g = 0; break;
      case Kind::ParallelKeys: g = -0.02 * sigmoid(p.gate[i]); break;
      case Kind::Softplus: g = -std::exp(3 * p.a_log[head] + 0.7) * std::log1p(std::exp(2 * p.gate[i] + p.dt_bias[channel])); break;
      case Kind::Wiped: g = i / static_cast<size_t>(heads * dim) % 5 == 3 ? -1000 : -0.05 * sigmoid(p.gate[i]); break;
      case Kind::Mixed: {
        const double of_kind[] = {0, -1000, -60 * sigmoid(p.gate[i]), p.gate[i] > 0 ? -1000 : -1e-3, -1e-3, -5};
        g = of_kind[channel % 6];
        break;
      }
      case Kind::Raw: g = -5 * sigmoid(std::exp(p.a_log[head]) * (p.gate[i] + p.dt_bias[channel])); break;
    }
    p.g.push_back(kind == Kind::Raw ? g : static_cast<float>(g));
  }
  for (const double x : p.beta_logits) {
    const double beta = kind == Kind::ParallelKeys ? sigmoid(5 + x) : sigmoid(x);
    p.beta.push_back(kind == Kind::Raw ? beta : static_cast<float>(beta));
  }
  return p;
}

namespace {

// Offsets of one head of one token.
struct At {
  size_t keys;
  size_t beta;
};
At at_of(const Problem& p, int64_t token, int64_t head) {
  const int64_t row = token * p.heads + head;
  return {static_cast<size_t>(row * p.dim), static_cast<size_t>(row)};
}

// state becomes the decayed state; returns v - state^T k.
Doubles decay_and_read(const Problem& p, At at, Doubles& state) {
  const auto d = static_cast<size_t>(p.dim);
  Doubles residual(p.v.begin() + static_cast<int64_t>(at.keys), p.v.begin() + static_cast<int64_t>(at.keys + d));
  for (size_t c = 0; c < d; ++c) {
    const double alpha = std::exp(p.g[at.keys + c]);
    for (size_t e = 0; e < d; ++e) {
      state[c * d + e] *= alpha;
      residual[e] -= p.k[at.keys + c] * state[c * d + e];
    }
  }
  return residual;
}

}  // namespace

ForwardResult reference_forward(const Problem& p) {
  const auto d = static_cast<size_t>(p.dim);
  ForwardResult r{.o = Doubles(p.v.size()), .final_state = p.initial};
  for (int64_t document = 0; document < p.documents(); ++document) {
    for (int64_t head = 0; head < p.heads; ++head) {
      const auto state_at = static_cast<size_t>(document * p.heads + head) * d * d;
      Doubles state(p.initial.begin() + static_cast<int64_t>(state_at), p.initial.begin() + static_cast<int64_t>(state_at + d * d));
      for (int64_t t = p.cu_seqlens[static_cast<size_t>(document)]; t < p.cu_seqlens[static_cast<size_t>(document) + 1]; ++t) {
        const At at = at_of(p, t, head);
        const Doubles residual = decay_and_read(p, at, state);
        for (size_t c = 0; c < d; ++c) {
          for (size_t e = 0; e < d; ++e) {
            state[c * d + e] += p.beta[at.beta] * p.k[at.keys + c] * residual[e];
            r.o[at.keys + e] += p.scale * p.q[at.keys + c] * state[c * d + e];
          }
        }
      }
      std::copy(state.begin(), state.end(), r.final_state.begin() + static_cast<int64_t>(state_at));
    }
  }
  return r;
}

Gradients reference_backward(const Problem& p, const Doubles& d_o, const Doubles& dfinal) {
  const auto d = static_cast<size_t>(p.dim);
  Gradients r{.dq = Doubles(p.q.size()),
              .dk = Doubles(p.q.size()),
              .dv = Doubles(p.q.size()),
              .dg = Doubles(p.q.size()),
              .dbeta = Doubles(p.beta.size()),
              .dinitial = dfinal};
  for (int64_t document = 0; document < p.documents(); ++document) {
    const int64_t begin = p.cu_seqlens[static_cast<size_t>(document)];
    const int64_t end = p.cu_seqlens[static_cast<size_t>(document) + 1];
    for (int64_t head = 0; head < p.heads; ++head) {
      const auto state_at = static_cast<size_t>(document * p.heads + head) * d * d;
      std::vector<Doubles> states;  // before each token
      Doubles state(p.initial.begin() + static_cast<int64_t>(state_at), p.initial.begin() + static_cast<int64_t>(state_at + d * d));
      for (int64_t t = begin; t < end; ++t) {
        states.push_back(state);
        const At at = at_of(p, t, head);
        const Doubles residual = decay_and_read(p, at, state);
        for (size_t c = 0; c < d; ++c) {
          for (size_t e = 0; e < d; ++e) {
            state[c * d + e] += p.beta[at.beta] * p.k[at.keys + c] * residual[e];
          }
        }
      }
      Doubles dstate(dfinal.begin() + static_cast<int64_t>(state_at), dfinal.begin() + static_cast<int64_t>(state_at + d * d));
      for (int64_t t = end - 1; t >= begin; --t) {
        const At at = at_of(p, t, head);
        const Doubles& before = states[static_cast<size_t>(t - begin)];
        Doubles decayed = before;
        const Doubles residual = decay_and_read(p, at, decayed);
        const double beta = p.beta[at.beta];
        Doubles dr(d);  // gradient of the residual
        for (size_t c = 0; c < d; ++c) {
          const double k = p.k[at.keys + c];
          for (size_t e = 0; e < d; ++e) {
            const double now = decayed[c * d + e] + beta * k * residual[e];
            r.dq[at.keys + c] += p.scale * now * d_o[at.keys + e];
            double& ds = dstate[c * d + e];
            ds += p.scale * p.q[at.keys + c] * d_o[at.keys + e];
            r.dk[at.keys + c] += beta * ds * residual[e];
            r.dbeta[at.beta] += k * ds * residual[e];
            dr[e] += beta * k * ds;
          }
        }
        for (size_t c = 0; c < d; ++c) {
          const double k = p.k[at.keys + c];
          const double alpha = std::exp(p.g[at.keys + c]);
          for (size_t e = 0; e < d; ++e) {
            double& ds = dstate[c * d + e];
            ds -= k * dr[e];
            r.dk[at.keys + c] -= decayed[c * d + e] * dr[e];
            r.dg[at.keys + c] += ds * alpha * before[c * d + e];
            ds *= alpha;
          }
        }
        std::copy(dr.begin(), dr.end(), r.dv.begin() + static_cast<int64_t>(at.keys));
      }
      std::copy(dstate.begin(), dstate.end(), r.dinitial.begin() + static_cast<int64_t>(state_at));
    }
  }
  return r;
}

namespace {

// dy of y = x / sqrt(sum x^2 + 1e-6) to dx, by rows.
void through_norm(Doubles& dy, const Doubles& y, const Doubles& x, int64_t dim) {
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(dim)) {
    double square = 1e-6;
    double along = 0;
    for (size_t i = row; i < row + static_cast<size_t>(dim); ++i) {
      square += x[i] * x[i];
      along += y[i] * dy[i];
    }
    for (size_t i = row; i < row + static_cast<size_t>(dim); ++i) {
      dy[i] = (dy[i] - along * y[i]) / std::sqrt(square);
    }
  }
}

}  // namespace

Gradients through_raw_inputs(const Problem& p, Gradients gradients) {
  Gradients r = std::move(gradients);
  through_norm(r.dq, p.q, p.q_raw, p.dim);
  through_norm(r.dk, p.k, p.k_raw, p.dim);
  const auto width = static_cast<size_t>(p.heads * p.dim);
  r.da_log = Doubles(static_cast<size_t>(p.heads));
  r.ddt_bias = Doubles(width);
  for (size_t i = 0; i < r.dg.size(); ++i) {
    const size_t channel = i % width;
    const size_t head = channel / static_cast<size_t>(p.dim);
    const double slope = std::exp(p.a_log[head]);
    const double logit = p.gate[i] + p.dt_bias[channel];
    const double open = sigmoid(slope * logit);
    const double of_exponent = r.dg[i] * -5 * open * (1 - open);
    r.dg[i] = of_exponent * slope;
    r.ddt_bias[channel] += of_exponent * slope;
    r.da_log[head] += of_exponent * slope * logit;
  }
  for (size_t i = 0; i < r.dbeta.size(); ++i) {
    r.dbeta[i] *= p.beta[i] * (1 - p.beta[i]);
  }
  return r;
}

}  // namespace longhaul::kda::cuda::testing
