// The integer types in which token files store tokens, and how many bytes each takes.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace longhaul {

// The values are the dtype codes of Megatron's .idx header; U32 appears in llm.c files only and has no code there.
enum class TokenType : uint8_t { U8 = 1, I8 = 2, I16 = 3, I32 = 4, I64 = 5, U16 = 8, U32 = 255 };

[[nodiscard]] constexpr int64_t bytes_of(TokenType type) noexcept {
  switch (type) {
    case TokenType::U8:
    case TokenType::I8: return 1;
    case TokenType::I16:
    case TokenType::U16: return 2;
    case TokenType::I32:
    case TokenType::U32: return 4;
    case TokenType::I64: return 8;
  }
  return 0;
}

[[nodiscard]] constexpr std::string_view to_string(TokenType type) noexcept {
  switch (type) {
    case TokenType::U8: return "u8";
    case TokenType::I8: return "i8";
    case TokenType::I16: return "i16";
    case TokenType::I32: return "i32";
    case TokenType::I64: return "i64";
    case TokenType::U16: return "u16";
    case TokenType::U32: return "u32";
  }
  return "?";
}

// Calls `function` with a value of the C++ type that stores `type`.
template <class Function>
decltype(auto) dispatch_token_type(TokenType type, Function&& function) {
  switch (type) {
    case TokenType::U8: return function(uint8_t{});
    case TokenType::I8: return function(int8_t{});
    case TokenType::I16: return function(int16_t{});
    case TokenType::I32: return function(int32_t{});
    case TokenType::I64: return function(int64_t{});
    case TokenType::U16: return function(uint16_t{});
    case TokenType::U32: return function(uint32_t{});
  }
  throw InternalError("token type {} has no storage", static_cast<int>(type));
}

}  // namespace longhaul
