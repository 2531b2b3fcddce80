// Copies of short rows; the backward pass sums the shared part over heads in head order.
#include "kernels/mla_pack/mla_pack_cpu.h"

#include <algorithm>

#include "kernels/rows.h"

namespace longhaul::cpu {

void mla_pack_forward(const MlaPackForward& op) {
  dispatch_float(op.k.dtype(), "mla_pack_forward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t heads = op.k.size(1);
    const int64_t nope_dim = op.k_heads.size(2);
    const int64_t shared_dim = op.k_shared.size(1);
    const Rows<T> shared = rows_of<T>(op.k_shared);
    T* k = op.k.data<T>();
    for (int64_t t = 0; t < op.k.size(0); ++t) {
      for (int64_t head = 0; head < heads; ++head) {
        const T* own = op.k_heads.data<T>() + t * op.k_heads.stride(0) + head * op.k_heads.stride(1);
        k = std::copy_n(own, nope_dim, k);
        k = std::copy_n(shared[t], shared_dim, k);
      }
    }
  });
}

void mla_pack_backward(const MlaPackBackward& op) {
  dispatch_float(op.dk.dtype(), "mla_pack_backward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t heads = op.dk.size(1);
    const int64_t nope_dim = op.dk_heads.size(2);
    const int64_t shared_dim = op.dk_shared.size(1);
    const Rows<T> dshared = rows_of<T>(op.dk_shared);
    const T* dk = op.dk.data<T>();
    for (int64_t t = 0; t < op.dk.size(0); ++t) {
      T* sum = dshared[t];
      std::fill_n(sum, shared_dim, T{0});
      for (int64_t head = 0; head < heads; ++head) {
        std::copy_n(dk, nope_dim, op.dk_heads.data<T>() + t * op.dk_heads.stride(0) + head * op.dk_heads.stride(1));
        dk += nope_dim;
#pragma omp simd
        for (int64_t c = 0; c < shared_dim; ++c) {
          sum[c] += dk[c];
        }
        dk += shared_dim;
      }
    }
  });
}

}  // namespace longhaul::cpu
