// (I + L)^-1 of a chunk (prepare.cuh): forward substitution in the 16 x 16 tiles by two warps, then [32, 32] from those and
// [64, 64] by four; T_IJ = -(T (L T))_IJ with what is known on both sides. Never by powers of L, which reach 1e17 for parallel
// keys. The result goes without the identity to the image's panel, with it to one for the next step.
#pragma once

#include "kernels/kda/cuda/prepare_layout.cuh"

namespace longhaul::kda::cuda {

inline constexpr int kDiagonalThreads = 64;
inline constexpr int kInvertWarps = 4;

// Column `column` of the inverse of the diagonal tile `tile`, by forward substitution.
template <class S>
__device__ __forceinline__ void invert_diagonal(unsigned char* shared, int tile, int column) {
  const auto* l = reinterpret_cast<const float*>(shared + S::kDiagonal) + tile * S::kDiagonalTile;
  float x[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    float sum = i == column ? 1.0F : 0.0F;
    float other = 0.0F;
#pragma unroll
    for (int m = 0; m < i; m += 4) {
      const float4 row = *reinterpret_cast<const float4*>(l + i * S::kDiagonalRow + m);
      sum -= row.x * x[m];
      if (m + 1 < i) {
        other -= row.y * x[m + 1];
      }
      if (m + 2 < i) {
        sum -= row.z * x[m + 2];
      }
      if (m + 3 < i) {
        other -= row.w * x[m + 3];
      }
    }
    x[i] = sum + other;
  }
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const uint32_t at = panel_offset(tile * kTile + i, tile * kTile + column, kChunk);
    const auto value = static_cast<uint16_t>(pack_f16(x[i], 0.0F));
    *reinterpret_cast<uint16_t*>(shared + S::kInverse + at) = value;
    *reinterpret_cast<uint16_t*>(shared + S::kSolve + at) = i == column ? uint16_t{0} : value;
  }
}

// Places of the tiles of panels [64, 64] for a lane.
template <int K>
struct InversePlaces {
  uint32_t base;
  uint32_t left;   // of a left operand, and of what is stored
  uint32_t right;  // of a right operand that is a row of tiles transposed, and of a left one transposed

  __device__ __forceinline__ InversePlaces(uint32_t shared, const Part<K>& part)
      : base(shared), left(part.fragment(shared, 0) - shared), right(part.right_fragment(shared, 0) - shared) {}
  static constexpr uint32_t kRow = kTile * kSlabRowBytes;
  template <int kPanel, int I, int J>
  [[nodiscard]] __device__ __forceinline__ uint32_t left_at() const {
    return base + (left ^ (J * 32U)) + (kPanel + I * kRow);
  }
  template <int kPanel, int I, int J>
  [[nodiscard]] __device__ __forceinline__ uint32_t right_at() const {
    return base + (right ^ (J * 32U)) + (kPanel + I * kRow);
  }
};

// sum += (L_IM T_MJ)^T
template <int K, int I, int M, int J>
__device__ __forceinline__ void add_lower_inverse(float (&sum)[8], const InversePlaces<K>& places) {
  using S = PrepareShared<K>;
  uint32_t a[4];
  uint32_t b[4];
  ldmatrix_transposed(a, places.template right_at<S::kInverse, M, J>());
  ldmatrix(b, places.template right_at<S::kLower, I, M>());
  mma_f16(sum, a, b[0], b[1]);
  mma_f16(sum + 4, a, b[2], b[3]);
}
// d -= T_IM X, of X^T as it stands in registers.
template <int K, int I, int M>
__device__ __forceinline__ void subtract_inverse_times(float (&d)[8], const float (&x)[8], const InversePlaces<K>& places) {
  using S = PrepareShared<K>;
  uint32_t a[4];
  ldmatrix(a, places.template left_at<S::kInverse, I, M>());
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    a[r] ^= 0x80008000U;
  }
  mma_f16(d, a, pack_f16(x[0], x[1]), pack_f16(x[4], x[5]));
  mma_f16(d + 4, a, pack_f16(x[2], x[3]), pack_f16(x[6], x[7]));
}
template <int K, int I, int J>
__device__ __forceinline__ void put_inverse(const float (&d)[8], const InversePlaces<K>& places) {
  using S = PrepareShared<K>;
  const uint32_t pairs[4] = {pack_f16(d[0], d[1]), pack_f16(d[2], d[3]), pack_f16(d[4], d[5]), pack_f16(d[6], d[7])};
  stmatrix(places.template left_at<S::kSolve, I, J>(), pairs);
  // Nobody reads the tiles of the last step.
  if constexpr (I - J == 1 && I != 2) {
    stmatrix(places.template left_at<S::kInverse, I, J>(), pairs);
  }
}

// T_10 or T_32.
template <int K, int J>
__device__ __forceinline__ void invert_neighbours(const InversePlaces<K>& places) {
  float x[8] = {};
  float d[8] = {};
  add_lower_inverse<K, J + 1, J, J>(x, places);
  subtract_inverse_times<K, J + 1, J + 1>(d, x, places);
  put_inverse<K, J + 1, J>(d, places);
}
// One of T_20, T_21, T_30, T_31, after the others.
template <int K, int I, int J>
__device__ __forceinline__ void invert_across(const InversePlaces<K>& places) {
  float x[8] = {};
  float d[8] = {};
  add_lower_inverse<K, 2, J, J>(x, places);
  if constexpr (J == 0) {
    add_lower_inverse<K, 2, 1, J>(x, places);
  }
  subtract_inverse_times<K, I, 2>(d, x, places);
  if constexpr (I == 3) {
    float y[8] = {};
    add_lower_inverse<K, 3, J, J>(y, places);
    if constexpr (J == 0) {
      add_lower_inverse<K, 3, 1, J>(y, places);
    }
    subtract_inverse_times<K, 3, 3>(d, y, places);
  }
  put_inverse<K, I, J>(d, places);
}

// The tiles below the diagonal, by four warps, `worker` is 0 to 3; they meet at a named barrier.
template <int K>
__device__ __forceinline__ void invert_lower(uint32_t shared, const Part<K>& part, int worker, int barrier) {
  const InversePlaces<K> places(shared, part);
  if (worker == 0) {
    invert_neighbours<K, 0>(places);
  } else if (worker == 1) {
    invert_neighbours<K, 2>(places);
  }
  sync_named(barrier, 32 * kInvertWarps);
  if (worker == 0) {
    invert_across<K, 2, 0>(places);
  } else if (worker == 1) {
    invert_across<K, 2, 1>(places);
  } else if (worker == 2) {
    invert_across<K, 3, 0>(places);
  } else {
    invert_across<K, 3, 1>(places);
  }
}

}  // namespace longhaul::kda::cuda
