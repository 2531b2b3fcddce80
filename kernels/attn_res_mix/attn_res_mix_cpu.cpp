// Attention-Residual mixing on the CPU, token by token: a token's result depends on no other token, bit for bit.
// Sources are visited in their order everywhere, and sums over hidden have the fixed order of lane_sum.h.
#include "kernels/attn_res_mix/attn_res_mix_cpu.h"

#include <algorithm>
#include <cmath>

#include "base/profile.h"
#include "kernels/add_gradient.h"
#include "kernels/math/fast_math.h"
#include "kernels/math/lane_sum.h"

namespace longhaul::cpu {
namespace {

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  return static_cast<T>(math::lane_sum(n, [=](int64_t i) { return a[i] * b[i]; }));
}

template <class T>
void fold(const TensorView& norm_scale, const TensorView& query, const TensorView& folded) {
  for (int64_t j = 0; j < folded.numel(); ++j) {
    folded.data<T>()[j] = norm_scale.data<T>()[j] * query.data<T>()[j];
  }
}

// Inverse norms, scores and probabilities of one token.
template <class T>
void mix_weights(std::span<const TensorView> sources, int64_t token, double eps, const AttnResMixScratch& scratch) {
  const int64_t hidden = scratch.folded.numel();
  T* scores = scratch.scores.data<T>();
  T* p = scratch.probabilities.data<T>();
  T largest = -INFINITY;
  for (size_t i = 0; i < sources.size(); ++i) {
    const T* v = sources[i].data<T>() + token * hidden;
    const T inv_rms = T{1} / std::sqrt(dot(v, v, hidden) / static_cast<T>(hidden) + static_cast<T>(eps));
    scratch.inv_rms.data<T>()[i] = inv_rms;
    scores[i] = inv_rms * dot(scratch.folded.data<T>(), v, hidden);
    largest = std::max(largest, scores[i]);
  }
  T total = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    p[i] = math::exp(scores[i] - largest);
    total += p[i];
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    p[i] /= total;
  }
}

template <class T>
void forward(const AttnResMixForward& op, const AttnResMixScratch& scratch) {
  const int64_t tokens = op.y.size(0);
  const int64_t hidden = op.y.size(1);
  fold<T>(op.norm_scale, op.query, scratch.folded);
  for (int64_t t = 0; t < tokens; ++t) {
    mix_weights<T>(op.sources, t, op.eps, scratch);
    T* y = op.y.data<T>() + t * hidden;
    for (size_t i = 0; i < op.sources.size(); ++i) {
      const T* v = op.sources[i].data<T>() + t * hidden;
      const T p = scratch.probabilities.data<T>()[i];
      for (int64_t j = 0; j < hidden; ++j) {
        y[j] = i == 0 ? p * v[j] : y[j] + p * v[j];
      }
    }
  }
}

// With s_i = r_i <a, v_i> and a = norm_scale * query:
//   ds_i = p_i (<dy, v_i> - <dy, y>);  dv_i += p_i dy + ds_i r_i (a - (s_i r_i / hidden) v_i);  da += ds_i r_i v_i
template <class T>
void backward_token(const AttnResMixBackward& op, int64_t t, const AttnResMixScratch& scratch) {
  const int64_t hidden = op.dy.size(1);
  const size_t sources = op.sources.size();
  const T* dy = op.dy.data<T>() + t * hidden;
  const T* a = scratch.folded.data<T>();
  const T* p = scratch.probabilities.data<T>();
  const T* r = scratch.inv_rms.data<T>();
  T* scores = scratch.scores.data<T>();
  double* da = scratch.dfolded.data<double>();

  T dy_y = 0;
  for (size_t i = 0; i < sources; ++i) {
    dy_y += p[i] * dot(dy, op.sources[i].data<T>() + t * hidden, hidden);
  }
  for (size_t i = 0; i < sources; ++i) {
    const T* v = op.sources[i].data<T>() + t * hidden;
    T* dv = op.dsources[i].data<T>() + t * hidden;
    const T slope = p[i] * (dot(dy, v, hidden) - dy_y) * r[i];
    const T shrink = scores[i] * r[i] / static_cast<T>(hidden);
    for (int64_t j = 0; j < hidden; ++j) {
      dv[j] += p[i] * dy[j] + slope * (a[j] - shrink * v[j]);
    }
    for (int64_t j = 0; j < hidden; ++j) {
      da[j] += static_cast<double>(slope * v[j]);
    }
  }
}

template <class T>
void backward(const AttnResMixBackward& op, const AttnResMixScratch& scratch) {
  const int64_t tokens = op.dy.size(0);
  const int64_t hidden = op.dy.size(1);
  double* da = scratch.dfolded.data<double>();
  fold<T>(op.norm_scale, op.query, scratch.folded);
  std::fill_n(da, hidden, 0.0);
  for (int64_t t = 0; t < tokens; ++t) {
    mix_weights<T>(op.sources, t, op.eps, scratch);
    backward_token<T>(op, t, scratch);
  }
  add_to_gradient(op.dquery, hidden, [&](int64_t j) { return static_cast<double>(op.norm_scale.data<T>()[j]) * da[j]; });
  add_to_gradient(op.dnorm_scale, hidden, [&](int64_t j) { return static_cast<double>(op.query.data<T>()[j]) * da[j]; });
}

}  // namespace

void attn_res_mix_forward(const AttnResMixForward& op, const AttnResMixScratch& scratch) {
  const ProfileScope profile("residual mix");
  dispatch_float(op.y.dtype(), "attn_res_mix_forward", [&](auto zero) { forward<decltype(zero)>(op, scratch); });
}

void attn_res_mix_backward(const AttnResMixBackward& op, const AttnResMixScratch& scratch) {
  const ProfileScope profile("residual mix");
  dispatch_float(op.dy.dtype(), "attn_res_mix_backward", [&](auto zero) { backward<decltype(zero)>(op, scratch); });
}

}  // namespace longhaul::cpu
