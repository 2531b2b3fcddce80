// How the kernel that prepares chunks (prepare.cuh) gets its inputs: asynchronous copies of a warp's part, sums of log-decays
// along a tile, norms of raw keys and queries.
//
// Sums along rows are products with a triangle of ones on the tensor cores: a log-decay goes in as two fp16 values (22 bits),
// comes in the layout of a right operand and leaves in that of a left one, as keys and queries lie in registers.
#pragma once

#include "kernels/kda/cuda/prepare_layout.cuh"

namespace longhaul::kda::cuda {

// A chunk of a head.
struct PrepareItem {
  int first_token;
  int rows;
  int head;
};

// The part's rows of 128 bytes from a matrix [tokens, stride], from `column` on, to a piece; zeros for rows from `rows` on, which
// may be none. Pieces of 16 bytes are permuted by bits of the row: all three, or bits 1 and 2 (to bits 1 and 2), as the data
// will be read.
enum class Swizzle : uint8_t { Matrix, Decays };
template <Swizzle kSwizzle, class T>
__device__ __forceinline__ void fetch_piece(uint32_t piece, const T* from, int first_token, int stride, int column, int rows, int lane) {
  const int row = lane / 8;
  const int step = stride * static_cast<int>(sizeof(T));
  const auto* at = reinterpret_cast<const unsigned char*>(from + column) + static_cast<int64_t>(first_token + row) * step + lane % 8 * 16;
  const uint32_t to = piece + static_cast<uint32_t>(row * kSlabRowBytes);
  const int even = kSwizzle == Swizzle::Matrix ? (lane % 8) ^ row : (lane % 8) ^ (row / 2 * 2);
  const uint32_t place_even = to + static_cast<uint32_t>(even * 16);
  const uint32_t place_odd = to + static_cast<uint32_t>((even ^ 4) * 16);
  if (rows >= kTile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      copy_16((i % 2 == 0 ? place_even : place_odd) + static_cast<uint32_t>(4 * i * kSlabRowBytes), at, false);
      at += 4 * step;
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const bool inside = row + 4 * i < rows;
      const uint32_t place = (i % 2 == 0 ? place_even : place_odd) + static_cast<uint32_t>(4 * i * kSlabRowBytes);
      copy_16(place, inside ? static_cast<const void*>(at) : from, !inside);
      at += 4 * step;
    }
  }
}

// Gates, or the second half of g, with what belongs to them; in the background. Their piece is free once the sums are formed.
template <int K, Inputs kInputs>
__device__ __forceinline__ void fetch_gates(const InputParams& in, const PrepareItem& item, uint32_t base, const Part<K>& part) {
  using S = PrepareShared<K>;
  const int first_row = part.tile() * kTile;
  const int rows = item.rows - first_row;
  const int column = item.head * K + part.slab() * kSlab;
  const int token = item.first_token + first_row;
  const uint32_t to = base + S::kGates + part.offset();
  if constexpr (kInputs == Inputs::Raw) {
    fetch_piece<Swizzle::Matrix>(to, in.gate, token, in.g_stride, column, rows, part.lane);
    if (part.lane < 16) {
      const bool none = in.dt_bias == nullptr;
      const void* from = none ? static_cast<const void*>(in.gate) : in.dt_bias + column + part.lane * 4;
      copy_16(base + S::kBias + static_cast<uint32_t>(part.warp * kSlab * 4 + part.lane * 16), from, none);
    }
  } else {
    fetch_piece<Swizzle::Decays>(to, in.g, token, in.g_stride, column + 32, rows, part.lane);
  }
  copies_commit();
}

// Queries and keys; before them, as a group of its own, the first half of g.
template <int K, Inputs kInputs>
__device__ __forceinline__ void fetch_rows(const InputParams& in, const PrepareItem& item, uint32_t base, const Part<K>& part) {
  using S = PrepareShared<K>;
  const int first_row = part.tile() * kTile;
  const int rows = item.rows - first_row;
  const int column = item.head * K + part.slab() * kSlab;
  const int token = item.first_token + first_row;
  const uint32_t to = base + part.offset();
  if constexpr (kInputs == Inputs::Ready) {
    fetch_piece<Swizzle::Decays>(to + S::kLeaving, in.g, token, in.g_stride, column, rows, part.lane);
    copies_commit();
  }
  fetch_piece<Swizzle::Matrix>(to + S::kQueries, in.q, token, in.q_stride, column, rows, part.lane);
  fetch_piece<Swizzle::Matrix>(to + S::kKeys, in.k, token, in.k_stride, column, rows, part.lane);
  copies_commit();
}

// What fetch_rows will ask for, into the second-level cache.
template <int K, Inputs kInputs>
__device__ __forceinline__ void prefetch_rows(const InputParams& in, const PrepareItem& item, const Part<K>& part) {
  const int row = min(part.tile() * kTile + part.lane / 2, item.rows - 1);
  const int channel = item.head * K + part.slab() * kSlab;
  const int64_t token = item.first_token + row;
  const uint16_t* q = in.q + token * in.q_stride + channel;
  const uint16_t* k = in.k + token * in.k_stride + channel;
  prefetch_line(part.lane % 2 == 0 ? q : k);
  if constexpr (kInputs == Inputs::Ready) {
    if (part.lane % 2 == 0) {
      prefetch_line(in.g + token * in.g_stride + channel);
    }
  }
}

// Of a row, as it comes: waiting for it is left to beta_of.
template <Inputs kInputs>
[[nodiscard]] __device__ __forceinline__ uint32_t fetch_beta(const InputParams& in, const PrepareItem& item, int row) {
  constexpr uint32_t none = kInputs == Inputs::Ready ? 0U : 0xff80U;  // minus infinity in bf16
  if (row >= item.rows) {
    return none;
  }
  const int64_t at = static_cast<int64_t>(item.first_token + row) * in.heads + item.head;
  return kInputs == Inputs::Ready ? bits_of(in.beta[at]) : in.beta_logits[at];
}
template <Inputs kInputs>
[[nodiscard]] __device__ __forceinline__ float beta_of(uint32_t fetched) {
  return kInputs == Inputs::Ready ? float_of(fetched) : sigmoid_fast(bf16_low(fetched));
}

// Of one head: gate = bound sigmoid(e^{a_log} (x + bias)), as a logarithm to the base 2.
struct GateCurve {
  float slope;         // of 1 + 2^{slope (x + bias)}
  float inverse_unit;  // 1 / (bound log2 e)

  __device__ __forceinline__ GateCurve(const InputParams& in, float a_log) : slope(-kLog2E * exp2_fast(kLog2E * a_log)) {
    constexpr float unbounded = -1e30F;  // a bound of zero decays nothing
    inverse_unit = in.gate_bound != 0.0F ? reciprocal_fast(kLog2E * in.gate_bound) : unbounded;
  }
  [[nodiscard]] static __device__ __forceinline__ float fetch_a_log(const InputParams& in, int head) {
    return in.a_log != nullptr ? in.a_log[head] : 0.0F;
  }
  // log2 of the decay of a gate, from slope times the bias
  [[nodiscard]] __device__ __forceinline__ float at(float gate, float slope_bias) const {
    return reciprocal_fast(fmaf(exp2_fast(fmaf(slope, gate, slope_bias)), inverse_unit, inverse_unit));
  }
};

// Rows from `rows` on do not decay: gates as low as they go. Rare, so that the usual way has no conditions.
template <int K>
__device__ __forceinline__ void mask_gates(unsigned char* shared, const Part<K>& part, int rows) {
  using S = PrepareShared<K>;
  constexpr uint32_t lowest = 0xff7fff7fU;
  for (int row = max(rows, 0) + part.lane / 8; row < kTile; row += 4) {
    *reinterpret_cast<uint4*>(shared + S::kGates + part.offset() + row * kSlabRowBytes + part.lane % 8 * 16) =
        make_uint4(lowest, lowest, lowest, lowest);
  }
}

// Log-decays of fragment b as right operands: x[4 h + 2 s + j] is row 8 s + 2 t + j, channel 16 b + 8 h + g.
template <int K>
__device__ __forceinline__ void read_gates(float (&x)[8], const GateCurve& curve, const unsigned char* shared, uint32_t base,
                                           const Part<K>& part, int b) {
  using S = PrepareShared<K>;
  uint32_t gates[4];
  ldmatrix_transposed(gates, part.fragment(base + S::kGates + part.offset(), b));
  const auto* bias = reinterpret_cast<const float*>(shared + S::kBias) + part.warp * kSlab + b * 16 + part.lane / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float slope_bias = curve.slope * bias[8 * h];
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      x[4 * h + 2 * s] = curve.at(bf16_low(gates[2 * h + s]), slope_bias);
      x[4 * h + 2 * s + 1] = curve.at(bf16_high(gates[2 * h + s]), slope_bias);
    }
  }
}
template <int K>
__device__ __forceinline__ void read_decays(float (&x)[8], const unsigned char* shared, const Part<K>& part, int b) {
  using S = PrepareShared<K>;
  const int t = part.lane % 4;
  const unsigned char* piece = shared + (b < 2 ? S::kLeaving : S::kGates) + part.offset();
  const int first = 2 * t * kSlabRowBytes + 2 * t * 16 + part.lane / 4 * 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const unsigned char* at = piece + (first ^ ((b % 2 * 4 + h * 2) * 16));
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        x[4 * h + 2 * s + j] = kLog2E * *reinterpret_cast<const float*>(at + (8 * s + j) * kSlabRowBytes);
      }
    }
  }
}

// Ones on and below the diagonal of [16, 16], a left operand. It waits in shared memory: constants would be moved to four
// neighbouring registers before each product.
struct Triangle {
  uint32_t ones[4];

  static __device__ __forceinline__ void write(uint4* to, int lane) {
    const int g = lane / 4;
    const int t = lane % 4;
    constexpr uint32_t one = 0x3c00U;  // in fp16
    const uint32_t diagonal = (2 * t <= g ? one : 0U) | (2 * t + 1 <= g ? one << 16 : 0U);
    to[lane] = make_uint4(diagonal, one | one << 16, 0U, diagonal);
  }
  explicit __device__ __forceinline__ Triangle(const uint4& from) : ones{from.x, from.y, from.z, from.w} {}
};
// c[2 i + j] += sums over the rows of a tile up to and with the row of register i.
__device__ __forceinline__ void add_sums(float (&c)[8], const float (&x)[8], const Triangle& triangle) {
  uint32_t high[4];
  uint32_t low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    high[i] = pack_f16(x[2 * i], x[2 * i + 1]);
    low[i] = pack_f16(x[2 * i] - f16_low(high[i]), x[2 * i + 1] - f16_high(high[i]));
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    mma_f16(c + 4 * h, triangle.ones, high[2 * h], high[2 * h + 1]);
    mma_f16(c + 4 * h, triangle.ones, low[2 * h], low[2 * h + 1]);
  }
}

// Sums of squares over the slab, of rows of raw q and k: the diagonal of the product with its own transpose.
template <int K>
__device__ __forceinline__ void sum_squares(unsigned char* shared, uint32_t base, const Part<K>& part) {
  using S = PrepareShared<K>;
  const int t = part.lane % 4;
  const int g = part.lane / 4;
  auto* squares = reinterpret_cast<float*>(shared + S::kSquares) + part.slab() * 2 * kChunk + part.tile() * kTile + g;
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    const uint32_t piece = base + (which == 0 ? S::kQueries : S::kKeys) + part.offset();
    float upper[4] = {};  // rows 0 to 7 as columns
    float lower[4] = {};
#pragma unroll
    for (int b = 0; b < kFragments; ++b) {
      uint32_t rows[4];
      uint32_t columns[4];
      ldmatrix(rows, part.fragment(piece, b));
      ldmatrix(columns, part.right_fragment(piece, b));
      mma_bf16(upper, rows, columns[0], columns[1]);
      mma_bf16(lower, rows, columns[2], columns[3]);
    }
    if (t == g / 2) {
      squares[which * kChunk] = g % 2 == 0 ? upper[0] : upper[1];
      squares[which * kChunk + 8] = g % 2 == 0 ? lower[2] : lower[3];
    }
  }
}
// 1 / norm of rows g and g + 8 of the part's tile; 1 where inputs are ready.
template <int K, Inputs kInputs>
__device__ __forceinline__ void read_norms(float (&of_q)[2], float (&of_k)[2], const unsigned char* shared, const Part<K>& part) {
  using S = PrepareShared<K>;
  constexpr float epsilon = 1e-6F;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    of_q[i] = 1.0F;
    of_k[i] = 1.0F;
    if constexpr (kInputs == Inputs::Raw) {
      const auto* at = reinterpret_cast<const float*>(shared + S::kSquares) + part.tile() * kTile + part.lane / 4 + 8 * i;
      float q = epsilon;
      float k = epsilon;
#pragma unroll
      for (int slab = 0; slab < S::kSlabs; ++slab) {
        q += at[slab * 2 * kChunk];
        k += at[(slab * 2 + 1) * kChunk];
      }
      of_q[i] = rsqrt_fast(q);
      of_k[i] = rsqrt_fast(k);
    }
  }
}

}  // namespace longhaul::kda::cuda
