// One vectorised pass. Bias corrections and the factors of the decays are formed in double once, because 1 - beta^step
// cancels for beta close to 1.
#include "kernels/adamw/adamw_cpu.h"

#include <cmath>

#include "base/profile.h"
#include "kernels/math/fast_math.h"

namespace longhaul::cpu {

namespace {

// T: type of parameter and state; G: type of the gradient, which is scaled before it is rounded to T.
template <class T, class G>
void update(const AdamW& op) {
    const auto steps = static_cast<double>(op.step);
    const T step_size = static_cast<T>(op.learning_rate / (1 - std::pow(op.beta1, steps)));
    const T inverse_root = static_cast<T>(1 / std::sqrt(1 - std::pow(op.beta2, steps)));
    const T keep1 = static_cast<T>(op.beta1), take1 = static_cast<T>(1 - op.beta1);
    const T keep2 = static_cast<T>(op.beta2), take2 = static_cast<T>(1 - op.beta2);
    const T decay = static_cast<T>(op.learning_rate * op.weight_decay);
    const T eps = static_cast<T>(op.eps);
    const G grad_scale = static_cast<G>(op.grad_scale);
    T* parameter = op.parameter.data<T>();
    const G* gradient = op.gradient.data<G>();
    T* first = op.m.data<T>();
    T* second = op.v.data<T>();
    const int64_t n = op.parameter.numel();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const T g = static_cast<T>(gradient[i] * grad_scale);
      const T m = keep1 * first[i] + take1 * g;
      const T v = keep2 * second[i] + take2 * (g * g);
      const T p = parameter[i];
      first[i] = m;
      second[i] = v;
      // Decay and step are added before they meet p: a decay smaller than half a unit of p is then not lost on its own.
      parameter[i] = p - (decay * p + step_size * m / (std::sqrt(v) * inverse_root + eps));
    }
}

}  // namespace

void adamw(const AdamW& op) {
  const ProfileScope profile("optimizer");
  dispatch_float(op.parameter.dtype(), "adamw", [&](auto zero) {
    using T = decltype(zero);
    if (op.gradient.dtype() == kDTypeOf<T>) {
      update<T, T>(op);
    } else {
      update<T, double>(op);
    }
  });
}

}  // namespace longhaul::cpu
