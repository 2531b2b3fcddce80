// Chunks of tensors as HDF5 programs with the registered zstd filter (32015) read them: bytes of equal rank are put together first
// (HDF5's shuffle filter), because exponents are alike where mantissas are noise, then compressed into one zstd frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace longhaul {

class ChunkCodec {
 public:
  // The stored form of `values`, elements of `element_bytes`; valid until the next call.
  [[nodiscard]] std::span<const std::byte> encode(std::span<const std::byte> values, int64_t element_bytes);
  // Back into `values`, whose size is that of the chunk. CheckpointError where `stored` is not such a chunk.
  void decode(std::span<const std::byte> stored, int64_t element_bytes, std::span<std::byte> values);

 private:
  std::vector<std::byte> shuffled_;
  std::vector<std::byte> frame_;
};

// More bytes than encode makes of `values_bytes`.
[[nodiscard]] int64_t encoded_bound(int64_t values_bytes);

// One zstd frame, without the shuffle: what the filter 32015 does. `target` must hold encoded_bound of the source; returns the bytes
// of the frame.
[[nodiscard]] int64_t compress_frame(std::span<const std::byte> source, std::span<std::byte> target);
// What a frame holds by its own account; -1 where it does not say or is none.
[[nodiscard]] int64_t frame_content_bytes(std::span<const std::byte> source);
// Exactly as many bytes as `target` holds; false where the source is no such frame.
[[nodiscard]] bool decompress_frame(std::span<const std::byte> source, std::span<std::byte> target);

}  // namespace longhaul
