// The functions of ptx.cuh on the CPU; see simt.h. Matrix fragments follow the PTX manual, descriptors of wgmma the
// canonical layouts with a 128-byte swizzle. Bulk copies complete at once.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>

#include "kernels/kda/cuda/emulation/simt.h"

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace simt {
void note_event();
}

namespace longhaul::kda::cuda {

using std::max;
using std::min;
using std::fabs;
inline float fabsf(float x) { return std::fabs(x); }

enum class Order : uint8_t { RowsOfPanel, ColumnsOfPanel };
enum class Sign : uint8_t { Plus, Minus };
enum class Into : uint8_t { Set, Add };

inline int thread_index() { return static_cast<int>(simt::thread_index.x); }
inline int block_index() { return static_cast<int>(simt::block_index.x); }
inline int block_threads() { return static_cast<int>(simt::block_size.x); }
inline int64_t grid_blocks() { return simt::grid_size.x; }

inline unsigned char* dynamic_shared() { return reinterpret_cast<unsigned char*>(simt::shared_memory()); }
inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(pointer) - dynamic_shared());
}
template <class T>
T* at_shared(uint32_t address) {
  return reinterpret_cast<T*>(dynamic_shared() + address);
}

inline void sync_block() { simt::sync_block(); }
inline void sync_warp() {
  simt::meet(simt::Together::Warp, nullptr, [](void**) {});
}
inline void sync_named(int barrier, int threads) { simt::sync_named(barrier, threads); }

inline int uniform(int x) { return x; }
inline float shuffle_xor(float value, int mask) {
  struct Operands {
    float value;
    int mask;
    float result;
  } mine{value, mask, 0};
  simt::meet(simt::Together::Warp, &mine, [](void** all) {
    for (int l = 0; l < 32; ++l) {
      auto* to = static_cast<Operands*>(all[l]);
      to->result = static_cast<Operands*>(all[l ^ to->mask])->value;
    }
  });
  return mine.result;
}

inline float flush(float x) { return std::fabs(x) < 1.17549435e-38F ? 0.0F : x; }
inline float exp2_fast(float x) { return flush(std::exp2(x)); }
inline float reciprocal_fast(float x) { return flush(1 / x); }
inline float rsqrt_fast(float x) { return 1 / std::sqrt(x); }

inline uint32_t to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) {
    return 0x7fff;
  }
  return (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
}
inline uint32_t to_f16(float x) { return std::bit_cast<uint16_t>(static_cast<_Float16>(x)); }
inline float from_bf16(uint32_t x) { return std::bit_cast<float>(x << 16); }
inline float from_f16(uint32_t x) { return static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(x))); }

inline uint32_t pack_bf16(float low, float high) { return to_bf16(low) | (to_bf16(high) << 16); }
inline uint32_t pack_f16(float low, float high) { return to_f16(low) | (to_f16(high) << 16); }
inline float bf16_low(uint32_t pair) { return from_bf16(pair & 0xffffU); }
inline float bf16_high(uint32_t pair) { return from_bf16(pair >> 16); }

inline float f16_low(uint32_t pair) { return from_f16(pair & 0xffffU); }
inline float f16_high(uint32_t pair) { return from_f16(pair >> 16); }
inline uint32_t max_abs_f16(uint32_t a, uint32_t b) {
  return pack_f16(max(f16_low(a), std::fabs(f16_low(b))), max(f16_high(a), std::fabs(f16_high(b))));
}
inline uint32_t max_abs_bf16(uint32_t a, uint32_t b) {
  return pack_bf16(max(bf16_low(a), std::fabs(bf16_low(b))), max(bf16_high(a), std::fabs(bf16_high(b))));
}
inline uint32_t multiply_f16(uint32_t a, uint32_t b) {
  return pack_f16(f16_low(a) * f16_low(b), f16_high(a) * f16_high(b));
}
inline uint32_t round_tf32(float x) { return (std::bit_cast<uint32_t>(x) + 0x1000U) & 0xffffe000U; }
inline bool any_lane(bool x) {
  float value = x ? 1.0F : 0.0F;
  for (int mask = 16; mask > 0; mask /= 2) {
    value = max(value, shuffle_xor(value, mask));
  }
  return value > 0;
}
inline uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
inline float float_of(uint32_t x) { return std::bit_cast<float>(x); }

inline void prefetch_line(const void*) {}
template <class T>
T load_once(const T* p) {
  return *p;
}

struct MatrixOperands {
  uint32_t address;
  uint32_t r[4];
};

template <bool kLoad, bool kTransposed>
void move_matrices(void** all) {
  const auto lane = [&](int l) { return static_cast<MatrixOperands*>(all[l]); };
  for (int m = 0; m < 4; ++m) {
    for (int l = 0; l < 32; ++l) {
      for (int half = 0; half < 2; ++half) {
        const int row = kTransposed ? 2 * (l % 4) + half : l / 4;
        const int column = kTransposed ? l / 4 : 2 * (l % 4) + half;
        auto* element = at_shared<uint16_t>(lane(8 * m + row)->address + 2 * static_cast<uint32_t>(column));
        uint32_t& r = lane(l)->r[m];
        if (kLoad) {
          r = half == 0 ? *element : (r | (static_cast<uint32_t>(*element) << 16));
        } else {
          *element = static_cast<uint16_t>(half == 0 ? r : r >> 16);
        }
      }
    }
  }
}

template <bool kTransposed>
void load_matrices(uint32_t (&r)[4], uint32_t address) {
  MatrixOperands mine{address, {}};
  simt::meet(simt::Together::Warp, &mine, move_matrices<true, kTransposed>);
  std::copy_n(mine.r, 4, r);
}
template <bool kTransposed>
void store_matrices(uint32_t address, const uint32_t (&r)[4]) {
  MatrixOperands mine{address, {r[0], r[1], r[2], r[3]}};
  simt::meet(simt::Together::Warp, &mine, move_matrices<false, kTransposed>);
}
inline void ldmatrix(uint32_t (&r)[4], uint32_t address) { load_matrices<false>(r, address); }
inline void ldmatrix_transposed(uint32_t (&r)[4], uint32_t address) { load_matrices<true>(r, address); }
inline void stmatrix(uint32_t address, const uint32_t (&r)[4]) { store_matrices<false>(address, r); }
inline void stmatrix_transposed(uint32_t address, const uint32_t (&r)[4]) { store_matrices<true>(address, r); }

// Rows g, g + 8 of A [16, 16] as each lane holds them.
template <class Decode>
void unpack_a(const uint32_t* a, int l, float (&matrix)[16][16], Decode decode) {
  for (int i = 0; i < 4; ++i) {
    const int row = l / 4 + 8 * (i % 2);
    const int column = 2 * (l % 4) + 8 * (i / 2);
    matrix[row][column] = decode(a[i] & 0xffffU);
    matrix[row][column + 1] = decode(a[i] >> 16);
  }
}

struct MmaOperands {
  float* d;
  const uint32_t* a;
  uint32_t b[2];
};
template <float (*kDecode)(uint32_t)>
void mma_together(void** all) {
  float a[16][16];
  float b[16][8];
  for (int l = 0; l < 32; ++l) {
    const auto* lane = static_cast<MmaOperands*>(all[l]);
    unpack_a(lane->a, l, a, kDecode);
    for (int i = 0; i < 2; ++i) {
      b[2 * (l % 4) + 8 * i][l / 4] = kDecode(lane->b[i] & 0xffffU);
      b[2 * (l % 4) + 8 * i + 1][l / 4] = kDecode(lane->b[i] >> 16);
    }
  }
  for (int l = 0; l < 32; ++l) {
    auto* lane = static_cast<MmaOperands*>(all[l]);
    for (int i = 0; i < 4; ++i) {
      const int row = l / 4 + 8 * (i / 2);
      const int column = 2 * (l % 4) + i % 2;
      for (int k = 0; k < 16; ++k) {
        lane->d[i] += a[row][k] * b[k][column];
      }
    }
  }
}
inline void mma_bf16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  MmaOperands mine{d, a, {b0, b1}};
  simt::meet(simt::Together::Warp, &mine, mma_together<from_bf16>);
}
inline void mma_f16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  MmaOperands mine{d, a, {b0, b1}};
  simt::meet(simt::Together::Warp, &mine, mma_together<from_f16>);
}

inline void mma_tf32_together(void** all) {
  float a[16][8];
  float b[8][8];
  for (int l = 0; l < 32; ++l) {
    const auto* lane = static_cast<MmaOperands*>(all[l]);
    for (int i = 0; i < 4; ++i) {
      a[l / 4 + 8 * (i % 2)][l % 4 + 4 * (i / 2)] = std::bit_cast<float>(lane->a[i]);
    }
    for (int i = 0; i < 2; ++i) {
      b[l % 4 + 4 * i][l / 4] = std::bit_cast<float>(lane->b[i]);
    }
  }
  for (int l = 0; l < 32; ++l) {
    auto* lane = static_cast<MmaOperands*>(all[l]);
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < 8; ++k) {
        lane->d[i] += a[l / 4 + 8 * (i / 2)][k] * b[k][2 * (l % 4) + i % 2];
      }
    }
  }
}
inline void mma_tf32(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  MmaOperands mine{d, a, {b0, b1}};
  simt::meet(simt::Together::Warp, &mine, mma_tf32_together);
}

// Element (n, k) of the right operand that a descriptor names.
inline float descriptor_element(uint64_t descriptor, Order order, int n, int k) {
  const auto start = static_cast<uint32_t>(descriptor & 0x3fffU) << 4;
  const auto leading = static_cast<uint32_t>((descriptor >> 16) & 0x3fffU) << 4;
  const auto stride = static_cast<uint32_t>((descriptor >> 32) & 0x3fffU) << 4;
  const auto un = static_cast<uint32_t>(n);
  const auto uk = static_cast<uint32_t>(k);
  uint32_t address = start;
  if (order == Order::RowsOfPanel) {
    address += un / 8 * stride + un % 8 * 128 + 2 * uk;
  } else {
    address += un / 64 * leading + un % 64 * 2 + uk / 8 * stride + uk % 8 * 128;
  }
  address ^= ((address >> 7) & 7U) << 4;
  return from_f16(*at_shared<uint16_t>(address));
}

struct WgmmaOperands {
  float* d;
  const uint32_t* a;
  uint64_t b;
  Into into;
};
template <int kColumns, Order kOrder, Sign kSign>
void wgmma_together(void** all) {
  static float b[16][kColumns];
  for (int k = 0; k < 16; ++k) {
    for (int n = 0; n < kColumns; ++n) {
      b[k][n] = descriptor_element(static_cast<WgmmaOperands*>(all[0])->b, kOrder, n, k);
    }
  }
  for (int warp = 0; warp < 4; ++warp) {
    float a[16][16];
    for (int l = 0; l < 32; ++l) {
      unpack_a(static_cast<WgmmaOperands*>(all[32 * warp + l])->a, l, a, from_f16);
    }
    for (int l = 0; l < 32; ++l) {
      auto* lane = static_cast<WgmmaOperands*>(all[32 * warp + l]);
      for (int i = 0; i < kColumns / 2; ++i) {
        const int row = l / 4 + 8 * (i / 2 % 2);
        const int column = 8 * (i / 4) + 2 * (l % 4) + i % 2;
        float sum = lane->into == Into::Add ? lane->d[i] : 0.0F;
        for (int k = 0; k < 16; ++k) {
          sum += (kSign == Sign::Plus ? a[row][k] : -a[row][k]) * b[k][column];
        }
        lane->d[i] = sum;
      }
    }
  }
}
template <int kColumns, Order kOrder, Sign kSign>
void wgmma_emulated(float* d, const uint32_t (&a)[4], uint64_t b, Into into) {
  WgmmaOperands mine{d, a, b, into};
  simt::meet(simt::Together::Warpgroup, &mine, wgmma_together<kColumns, kOrder, kSign>);
}
template <Order kOrder, Sign kSign>
void wgmma_n32(float* d, const uint32_t (&a)[4], uint64_t b, Into into) {
  wgmma_emulated<32, kOrder, kSign>(d, a, b, into);
}
template <Order kOrder, Sign kSign>
void wgmma_n64(float* d, const uint32_t (&a)[4], uint64_t b, Into into) {
  wgmma_emulated<64, kOrder, kSign>(d, a, b, into);
}
template <Order kOrder, Sign kSign>
void wgmma_n128(float* d, const uint32_t (&a)[4], uint64_t b, Into into) {
  wgmma_emulated<128, kOrder, kSign>(d, a, b, into);
}

struct WgmmaSharedOperands {
  float* d;
  uint64_t a;
  uint64_t b;
  Into into;
};
template <int kColumns, Order kOrder>
void wgmma_shared_together(void** all) {
  static float a[64][16];
  static float b[16][kColumns];
  const auto* first = static_cast<WgmmaSharedOperands*>(all[0]);
  for (int k = 0; k < 16; ++k) {
    for (int m = 0; m < 64; ++m) {
      a[m][k] = descriptor_element(first->a, Order::RowsOfPanel, m, k);
    }
    for (int n = 0; n < kColumns; ++n) {
      b[k][n] = descriptor_element(first->b, kOrder, n, k);
    }
  }
  for (int thread = 0; thread < 128; ++thread) {
    auto* lane = static_cast<WgmmaSharedOperands*>(all[thread]);
    for (int i = 0; i < kColumns / 2; ++i) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (i / 2 % 2);
      const int column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
      float sum = lane->into == Into::Add ? lane->d[i] : 0.0F;
      for (int k = 0; k < 16; ++k) {
        sum += a[row][k] * b[k][column];
      }
      lane->d[i] = sum;
    }
  }
}
template <Order kOrder>
void wgmma_shared_n32(float* d, uint64_t a, uint64_t b, Into into) {
  WgmmaSharedOperands mine{d, a, b, into};
  simt::meet(simt::Together::Warpgroup, &mine, wgmma_shared_together<32, kOrder>);
}
template <Order kOrder>
void wgmma_shared_n64(float* d, uint64_t a, uint64_t b, Into into) {
  WgmmaSharedOperands mine{d, a, b, into};
  simt::meet(simt::Together::Warpgroup, &mine, wgmma_shared_together<64, kOrder>);
}
inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int kLeft>
void wgmma_wait() {}
inline void hold(float&) {}
inline void hold(uint32_t&) {}
inline void forget(int&) {}

template <int kRegisters>
void fewer_registers() {}
template <int kRegisters>
void more_registers() {}

// Kept in the 8 bytes of shared memory that the barrier has there.
struct PackedBarrier {
  uint8_t arrivals;
  uint8_t pending;
  uint16_t phase;
  int32_t bytes;
};
inline void complete(PackedBarrier* b) {
  if (b->pending == 0 && b->bytes == 0) {
    b->pending = b->arrivals;
    b->phase ^= 1;
    simt::note_event();
  }
}
inline void mbarrier_init(uint32_t barrier, int arrivals) {
  *at_shared<PackedBarrier>(barrier) = {static_cast<uint8_t>(arrivals), static_cast<uint8_t>(arrivals), 0, 0};
}
inline void fence_barrier_init() {}
inline void fence_async_proxy() {}
inline void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  auto* b = at_shared<PackedBarrier>(barrier);
  b->bytes += static_cast<int32_t>(bytes);
  --b->pending;
  complete(b);
}
inline void mbarrier_arrive(uint32_t barrier) { mbarrier_arrive_expect(barrier, 0); }
inline void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  while (at_shared<PackedBarrier>(barrier)->phase == parity) {
    simt::yield();
  }
}
inline void copy_16(uint32_t to_shared, const void* from, bool zeros) {
  if (to_shared % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) {
    std::abort();
  }
  if (zeros) {
    std::memset(at_shared<unsigned char>(to_shared), 0, 16);
  } else {
    std::memcpy(at_shared<unsigned char>(to_shared), from, 16);
  }
}
inline void copies_commit() {}
template <int kLeft>
void copies_wait_for() {}
inline void copies_wait() {}
inline void copies_arrive(uint32_t barrier) { mbarrier_arrive(barrier); }
inline void bulk_load(uint32_t to_shared, const void* from, uint32_t bytes, uint32_t barrier) {
  if (to_shared % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes % 16 != 0) {
    std::abort();
  }
  std::memcpy(at_shared<unsigned char>(to_shared), from, bytes);
  auto* b = at_shared<PackedBarrier>(barrier);
  b->bytes -= static_cast<int32_t>(bytes);
  complete(b);
}

inline void bulk_store(void* to, uint32_t from_shared, uint32_t bytes) {
  if (from_shared % 16 != 0 || reinterpret_cast<uintptr_t>(to) % 16 != 0 || bytes % 16 != 0) {
    std::abort();
  }
  std::memcpy(to, at_shared<unsigned char>(from_shared), bytes);
}
inline void bulk_store_commit() {}
inline void bulk_store_wait() {}

}  // namespace longhaul::kda::cuda
