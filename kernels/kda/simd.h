// Vectors of float or double, as wide as AVX or else SSE and NEON, with explicit fused multiply-add: one template serves
// both types, and the rounding of every element is fixed by the source, since the build forbids the compiler to fuse on its
// own. Without FMA hardware a multiply and an add are used; results differ in the last bit between such machines only.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__FMA__)
#include <immintrin.h>
#endif

namespace longhaul::tiles {

#if defined(__AVX__)
inline constexpr int64_t kVectorBytes = 32;
#else
inline constexpr int64_t kVectorBytes = 16;
#endif

template <class T>
struct Simd {
  static constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(T));
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename Simd<T>::Vector;
template <class T>
inline constexpr int64_t kLanes = Simd<T>::kLanes;

template <class T>
[[gnu::always_inline]] inline Vector<T> load(const T* from) {
  Vector<T> value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
template <class T>
[[gnu::always_inline]] inline void store(T* to, Vector<T> value) {
  std::memcpy(to, &value, sizeof(value));
}
template <class T>
[[gnu::always_inline]] inline Vector<T> broadcast(T value) {
  return value - Vector<T>{};  // x - 0 is x for every x, signed zeros included
}

// a * b + c, rounded once where the hardware can.
[[gnu::always_inline]] inline Vector<float> multiply_add(Vector<float> a, Vector<float> b, Vector<float> c) {
#if defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}
[[gnu::always_inline]] inline Vector<double> multiply_add(Vector<double> a, Vector<double> b, Vector<double> c) {
#if defined(__FMA__)
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}
// c - a * b
[[gnu::always_inline]] inline Vector<float> subtract_product(Vector<float> a, Vector<float> b, Vector<float> c) {
#if defined(__FMA__)
  return _mm256_fnmadd_ps(a, b, c);
#else
  return c - a * b;
#endif
}
[[gnu::always_inline]] inline Vector<double> subtract_product(Vector<double> a, Vector<double> b, Vector<double> c) {
#if defined(__FMA__)
  return _mm256_fnmadd_pd(a, b, c);
#else
  return c - a * b;
#endif
}

// Sum of the lanes in a fixed order: halves, quarters, eighths.
template <class T>
[[gnu::always_inline]] inline T sum_of_lanes(Vector<T> value) {
  T lanes[kLanes<T>];
  std::memcpy(lanes, &value, sizeof(value));
  for (int64_t width = kLanes<T> / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) {
      lanes[i] += lanes[i + width];
    }
  }
  return lanes[0];
}

// sum_c a[c] * b[c]; n is a multiple of 16. Two partial sums, in a fixed order.
template <class T>
[[nodiscard]] inline T dot(const T* a, const T* b, int64_t n) {
  Vector<T> even{};
  Vector<T> odd{};
  for (int64_t c = 0; c < n; c += 2 * kLanes<T>) {
    even = multiply_add(load(a + c), load(b + c), even);
    odd = multiply_add(load(a + c + kLanes<T>), load(b + c + kLanes<T>), odd);
  }
  return sum_of_lanes<T>(even + odd);
}

}  // namespace longhaul::tiles
