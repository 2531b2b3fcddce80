// The check of document boundaries that the packed CPU operators make before they touch data.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace longhaul {

// Throws ShapeError unless cu_seqlens [documents + 1] cuts [0, tokens) into documents: a wrong boundary would otherwise
// read and write beyond the tensors. Empty documents are allowed.
inline void check_boundaries(std::string_view op, const int64_t* cu_seqlens, int64_t documents, int64_t tokens) {
  if (cu_seqlens[0] != 0 || cu_seqlens[documents] != tokens) {
    throw ShapeError("{}: cu_seqlens must run from 0 to tokens = {}, got {} to {}", op, tokens, cu_seqlens[0],
                     cu_seqlens[documents]);
  }
  for (int64_t d = 0; d < documents; ++d) {
    if (cu_seqlens[d + 1] < cu_seqlens[d]) {
      throw ShapeError("{}: cu_seqlens must not decrease, got {} after {} at document {}", op, cu_seqlens[d + 1],
                       cu_seqlens[d], d);
    }
  }
}

}  // namespace longhaul
