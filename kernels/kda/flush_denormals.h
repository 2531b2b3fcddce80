// A scope in which results below the normal range become zero. Decay over a chunk runs through that range (e^-87 to e^-103
// in float, 20 rows at the bound of -5), where each operation costs a hundred cycles or more and the values, next to
// results of order one, mean nothing. The previous mode returns at the end of the scope. Without SSE it does nothing.
#pragma once

#if defined(__SSE__)
#include <immintrin.h>
#endif

namespace longhaul::tiles {

#if defined(__SSE__)
class FlushDenormals {
 public:
  FlushDenormals() : previous_(_mm_getcsr()) {
    constexpr unsigned kFlushResults = 0x8000;
    constexpr unsigned kInputsAreZero = 0x0040;
    _mm_setcsr(previous_ | kFlushResults | kInputsAreZero);
  }
  ~FlushDenormals() { _mm_setcsr(previous_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned previous_;
};
#else
class FlushDenormals {
 public:
  FlushDenormals() {}  // NOLINT: user-provided, so that an unused scope object draws no warning
};
#endif

}  // namespace longhaul::tiles
