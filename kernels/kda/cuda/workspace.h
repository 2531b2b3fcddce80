// Where things lie in the caller's workspace and in the saved buffer. Pure arithmetic.
#pragma once

#include <cstddef>

#include "kernels/kda/cuda/kda_cuda.h"
#include "kernels/kda/cuda/layout.cuh"

namespace longhaul::kda::cuda {

// Cuts an aligned block into parts; with no memory behind it, it only counts.
class Cutter {
 public:
  explicit Cutter(void* memory) : memory_(static_cast<unsigned char*>(memory)) {}

  template <class T>
  [[nodiscard]] T* take(int64_t count) {
    auto* at = reinterpret_cast<T*>(memory_ + used_);
    used_ += round_up_to(count * static_cast<int64_t>(sizeof(T)), 1024);
    return memory_ == nullptr ? nullptr : at;
  }
  [[nodiscard]] int64_t used() const { return used_; }

 private:
  unsigned char* memory_;
  int64_t used_ = 0;
};

[[nodiscard]] inline int64_t max_chunks(const Sizes& s) { return (s.tokens + kChunk - 1) / kChunk + s.documents; }

// A segment is long enough that handing its state on costs little, and a document with fewer heads than the chip has
// multiprocessors still keeps it busy. It depends on the number of heads alone, for the sake of bitwise causality.
[[nodiscard]] inline SegmentRule segment_rule_of(const Sizes& s, int64_t asked) {
  constexpr int64_t many_heads = 48;
  constexpr int32_t usual = 256;
  constexpr int32_t unlimited = 1 << 30;
  if (asked > 0) {
    return {static_cast<int32_t>(asked), static_cast<int32_t>(asked)};
  }
  if (s.heads > many_heads) {
    return {unlimited, unlimited};
  }
  return {s.heads > 32 ? 64 : (s.heads > 16 ? 32 : 16), usual};
}
// At most: documents of one length have the most segments, but for rounding.
[[nodiscard]] inline int64_t max_segments(const Sizes& s, const SegmentRule& rule) {
  if (s.documents <= 1) {
    return rule.count(max_chunks(s));
  }
  return s.documents * (rule.count((max_chunks(s) + s.documents - 1) / s.documents) + 1);
}
// Whether a document can have two.
[[nodiscard]] inline bool has_segments(const Sizes& s, const SegmentRule& rule) { return max_chunks(s) > rule.first; }
[[nodiscard]] inline int64_t image_bytes(const Sizes& s) {
  return s.head_dim == 128 ? ChunkImage<128>::kBytes : ChunkImage<64>::kBytes;
}

[[nodiscard]] inline Tables take_tables(Cutter& cutter, const Sizes& s, int64_t segments) {
  return {.document_chunks = cutter.take<int32_t>(s.documents + 1),
          .document_segments = cutter.take<int32_t>(s.documents + 1),
          .chunks = cutter.take<ChunkEntry>(max_chunks(s)),
          .segments = cutter.take<SegmentEntry>(segments),
          .order = cutter.take<int32_t>(segments)};
}

struct ForwardWorkspace {
  Tables tables;
  unsigned char* images;  // none where they are saved
  int32_t* reach;
  float* leaving_state;
  float* transfer_matrix;
};

[[nodiscard]] inline ForwardWorkspace take_forward(Cutter& cutter, const Sizes& s, const SegmentRule& rule) {
  const int64_t segments = max_segments(s, rule);
  const int64_t states = has_segments(s, rule) ? segments * s.heads * s.head_dim * s.head_dim : 0;
  return {.tables = take_tables(cutter, s, segments),
          .images = cutter.take<unsigned char>(s.saving == Saving::Images ? 0 : max_chunks(s) * s.heads * image_bytes(s)),
          .reach = cutter.take<int32_t>(segments * s.heads),
          .leaving_state = cutter.take<float>(states),
          .transfer_matrix = cutter.take<float>(states)};
}

// See walk_stages.cuh.
[[nodiscard]] inline int64_t factor_count(const Sizes& s) { return max_chunks(s) * s.heads * s.head_dim; }

struct BackwardWorkspace {
  Tables tables;
  unsigned char* images;
  int32_t* reach;
  float* entering_gradient;
  float* transfer_matrix;
  unsigned char* state_gradients;     // panels [head_dim, head_dim], [chunks, heads]
  unsigned char* residual_gradients;  // panels [64, head_dim], [chunks, heads]
  float* gradient_factors;            // [chunks, heads, head_dim]
  float* bias_gradients;              // [chunks, heads, head_dim] parts of ddt_bias
  float* slope_gradients;             // [chunks, heads] parts of da_log
};

[[nodiscard]] inline BackwardWorkspace take_backward(Cutter& cutter, const Sizes& s, const SegmentRule& rule) {
  const ForwardWorkspace shared = take_forward(cutter, s, rule);
  const int64_t count = max_chunks(s) * s.heads;
  return {.tables = shared.tables,
          .images = shared.images,
          .reach = shared.reach,
          .entering_gradient = shared.leaving_state,
          .transfer_matrix = shared.transfer_matrix,
          .state_gradients = cutter.take<unsigned char>(count * s.head_dim * s.head_dim * 2),
          .residual_gradients = cutter.take<unsigned char>(count * kChunk * s.head_dim * 2),
          .gradient_factors = cutter.take<float>(factor_count(s)),
          .bias_gradients = cutter.take<float>(factor_count(s)),
          .slope_gradients = cutter.take<float>(count)};
}

struct Saved {
  unsigned char* states;     // panels [head_dim, head_dim], [chunks, heads]
  unsigned char* residuals;  // panels [64, head_dim], [chunks, heads]
  float* factors;            // [chunks, heads, head_dim]
  unsigned char* images;     // [chunks, heads] ChunkImage, with Saving::Images
};

[[nodiscard]] inline Saved take_saved(Cutter& cutter, const Sizes& s) {
  const int64_t count = max_chunks(s) * s.heads;
  return {.states = cutter.take<unsigned char>(count * s.head_dim * s.head_dim * 2),
          .residuals = cutter.take<unsigned char>(count * kChunk * s.head_dim * 2),
          .factors = cutter.take<float>(factor_count(s)),
          .images = cutter.take<unsigned char>(s.saving == Saving::Images ? count * image_bytes(s) : 0)};
}

}  // namespace longhaul::kda::cuda
