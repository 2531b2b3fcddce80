// What the CUDA versions of Kimi Delta Attention need of sizes and addresses, beyond what all versions need.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "kernels/kda/chunk_layout.h"
#include "kernels/kda/kda_cuda.h"

namespace longhaul::kda {

inline void expect_cuda_sizes(std::string_view name, const Dims& dims) {
  const auto check = [&](std::string_view what, int64_t size) {
    constexpr int64_t step = longhaul::cuda::kKdaDimStep, most = longhaul::cuda::kKdaMaxDim;
    if (size < step || size > most || size % step != 0) {
      throw ShapeError("{}: {} must be a multiple of {} up to {} on a GPU, got {}", name, what, step, most, size);
    }
  };
  check("key_dim", dims.key_dim);
  check("value_dim", dims.value_dim);
  constexpr int64_t kMostHeads = 2048;  // heads times slices of the value dimension are the second dimension of a grid
  if (dims.heads > kMostHeads) {
    throw ShapeError("{}: q must have at most {} heads on a GPU, got {}", name, kMostHeads, dims.heads);
  }
}

// Alignment is known when there is memory.
inline void expect_aligned(std::string_view name, std::initializer_list<std::pair<std::string_view, const TensorView*>> arguments) {
  constexpr uintptr_t kBytes = 16;
  for (const auto& [argument, view] : arguments) {
    if (view->is_present() && view->numel() > 0 && reinterpret_cast<uintptr_t>(view->raw()) % kBytes != 0) {
      throw ShapeError("{}: {} must begin at a multiple of {} bytes on a GPU; copy it to a tensor of its own", name, argument, kBytes);
    }
  }
}

}  // namespace longhaul::kda
