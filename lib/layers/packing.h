// The packed documents of one micro-batch. State, convolution windows and attention never cross a document's start.
#pragma once

#include "tensor/tensor_view.h"

namespace longhaul {

struct Packing {
  int64_t tokens = 0;
  TensorView cu_seqlens;  // i64 [documents + 1], from 0 to tokens, on the model's device

  [[nodiscard]] int64_t documents() const noexcept { return cu_seqlens.size(0) - 1; }
};

}  // namespace longhaul
