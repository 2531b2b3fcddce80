// Sizes and places that the kernels of the general path and its planning share: the image of a chunk, and how many chunks
// are in scratch at a time.
//
// The image of a chunk and head is a row of tiles [64, 64] of f32, each contiguous, and the decay of the whole chunk:
//   for each 64 key channels: k e^G, then scale q e^G        (2 * key_tiles tiles)
//   T = (I + L)^-1, then A                                   (2 tiles)
//   for each 64 key channels: k e^{G_C - G}                  (key_tiles tiles)
//   e^{G_C}                                                  (key_tiles * 64 floats)
// Channels beyond key_dim and rows beyond the document are zero, and their decay is 1.
#pragma once

#include <cstdint>

namespace longhaul::cuda::kda_general {

inline constexpr int kChunk = 64;   // rows of a chunk
inline constexpr int kTile = 16;    // rows between anchors of decay
inline constexpr int kKeys = 64;    // key channels of a tile
inline constexpr int kTileFloats = kChunk * kKeys;

struct ImageLayout {
  int key_tiles = 0;

  [[nodiscard]] constexpr int64_t tiles() const { return 3 * key_tiles + 2; }
  [[nodiscard]] constexpr int64_t floats() const { return tiles() * kTileFloats + int64_t{key_tiles} * kKeys; }
  [[nodiscard]] constexpr int k_start(int t) const { return 2 * t; }
  [[nodiscard]] constexpr int q_start(int t) const { return 2 * t + 1; }
  [[nodiscard]] constexpr int inverse() const { return 2 * key_tiles; }
  [[nodiscard]] constexpr int scores() const { return 2 * key_tiles + 1; }
  [[nodiscard]] constexpr int k_last(int t) const { return 2 * key_tiles + 2 + t; }
  [[nodiscard]] constexpr int64_t total() const { return tiles() * kTileFloats; }
};

[[nodiscard]] constexpr ImageLayout image_layout(int64_t key_dim) { return {static_cast<int>((key_dim + kKeys - 1) / kKeys)}; }

}  // namespace longhaul::cuda::kda_general
