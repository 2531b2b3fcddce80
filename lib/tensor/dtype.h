// Element types, their names and sizes, and the dispatch from a run-time type to a template argument.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#ifndef __CUDACC__  // nvcc cannot compile fmt
#include "base/error.h"
#endif

namespace longhaul {

enum class DType : uint8_t { F64, F32, BF16, I64, I32, U8 };

// bfloat16 as stored: the upper half of a float. Conversion rounds to nearest even and keeps NaN.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit constexpr BFloat16(float value) noexcept {
    const auto word = std::bit_cast<uint32_t>(value);
    bits = (word & 0x7fffffffu) > 0x7f800000u ? static_cast<uint16_t>((word >> 16) | 0x40u)
                                              : static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  explicit constexpr operator float() const noexcept { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

[[nodiscard]] constexpr int64_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::F64:
    case DType::I64: return 8;
    case DType::F32:
    case DType::I32: return 4;
    case DType::BF16: return 2;
    case DType::U8: return 1;
  }
  return 0;
}

[[nodiscard]] constexpr std::string_view to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::F64: return "f64";
    case DType::F32: return "f32";
    case DType::BF16: return "bf16";
    case DType::I64: return "i64";
    case DType::I32: return "i32";
    case DType::U8: return "u8";
  }
  return "?";
}

template <class T>
inline constexpr bool kIsElementType = false;
template <class T>
inline constexpr DType kDTypeOf = DType::U8;
#define LH_ELEMENT_TYPE(type, name)               \
  template <>                                     \
  inline constexpr bool kIsElementType<type> = true; \
  template <>                                     \
  inline constexpr DType kDTypeOf<type> = DType::name
LH_ELEMENT_TYPE(double, F64);
LH_ELEMENT_TYPE(float, F32);
LH_ELEMENT_TYPE(BFloat16, BF16);
LH_ELEMENT_TYPE(int64_t, I64);
LH_ELEMENT_TYPE(int32_t, I32);
LH_ELEMENT_TYPE(uint8_t, U8);
#undef LH_ELEMENT_TYPE

// ShapeError: "{op}: {backend} computes in {wanted}, got {dtype}".
[[noreturn]] void throw_wrong_type(std::string_view op, std::string_view backend, std::string_view wanted, DType dtype);

// Calls fn with a value of the C++ type for `dtype`, which must be F32 or F64: the types of the CPU backend.
//   dispatch_float(x.dtype, "rms_norm", [&](auto zero) { using T = decltype(zero); … });
template <class Fn>
void dispatch_float(DType dtype, std::string_view op, Fn&& fn) {
  if (dtype == DType::F32) {
    fn(float{});
    return;
  }
  if (dtype == DType::F64) {
    fn(double{});
    return;
  }
  throw_wrong_type(op, "the CPU backend", "f32 or f64", dtype);
}

}  // namespace longhaul
