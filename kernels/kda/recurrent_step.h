// One token of the recurrence of Kimi Delta Attention (Kimi Linear, arXiv:2510.26692, eq. 1), which the recurrent form and
// decoding share:  S <- Diag(e^{g}) S;   S <- S + beta k (v - S^T k)^T;   o = S^T (scale * q)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace longhaul::kda {

template <class T>
struct Token {
  const T* q;  // [key_dim]
  const T* k;  // [key_dim]
  const T* v;  // [value_dim]
  const T* g;  // [key_dim]
  T beta;
  T scale;
  T* o;  // [value_dim]
};

// state is [key_dim, value_dim]; residual is work of [value_dim].
template <class T>
void recurrent_step(const Token<T>& token, int64_t key_dim, int64_t value_dim, T* state, T* residual) {
  for (int64_t c = 0; c < key_dim; ++c) {
    const T alpha = std::exp(token.g[c]);
    for (int64_t e = 0; e < value_dim; ++e) {
      state[c * value_dim + e] *= alpha;
    }
  }
  std::copy_n(token.v, value_dim, residual);
  for (int64_t c = 0; c < key_dim; ++c) {
    for (int64_t e = 0; e < value_dim; ++e) {
      residual[e] -= token.k[c] * state[c * value_dim + e];
    }
  }
  std::fill_n(token.o, value_dim, T{0});
  for (int64_t c = 0; c < key_dim; ++c) {
    const T write = token.beta * token.k[c];
    const T read = token.scale * token.q[c];
    for (int64_t e = 0; e < value_dim; ++e) {
      state[c * value_dim + e] += write * residual[e];
      token.o[e] += read * state[c * value_dim + e];
    }
  }
}

}  // namespace longhaul::kda
