// What is compressed comes back bit by bit; what is not a chunk is refused.
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "base/error.h"
#include "base/philox.h"
#include "storage/chunk_codec.h"

using namespace longhaul;

namespace {

// Floats of one magnitude with noise in their mantissas, like weights.
std::vector<std::byte> weights(int64_t count) {
  const RandomStream random{.seed = 1, .stream = 2};
  std::vector<std::byte> bytes(static_cast<size_t>(count) * sizeof(float));
  for (int64_t i = 0; i < count; ++i) {
    const float value = (static_cast<float>(random.words(static_cast<uint64_t>(i))[0]) / 4294967296.0F - 0.5F) * 0.04F;
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(float), &value, sizeof(float));
  }
  return bytes;
}

}  // namespace

TEST_CASE("chunks come back bit by bit", "[storage]") {
  ChunkCodec codec;
  for (const int64_t element : {1, 2, 4, 8}) {
    for (const int64_t count : {2, 64, 20000}) {
      const std::vector<std::byte> values = weights(count);
      const std::span<const std::byte> encoded = codec.encode(values, element);
      CHECK(static_cast<int64_t>(encoded.size()) <= encoded_bound(static_cast<int64_t>(values.size())));
      const std::vector<std::byte> stored(encoded.begin(), encoded.end());
      std::vector<std::byte> back(values.size());
      ChunkCodec().decode(stored, element, back);
      CHECK(back == values);
    }
  }
}

TEST_CASE("bytes of equal rank compress together", "[storage]") {
  const std::vector<std::byte> values = weights(100000);
  ChunkCodec codec;
  const size_t apart = codec.encode(values, 1).size();
  const size_t together = codec.encode(values, 4).size();
  CHECK(static_cast<double>(together) < 0.9 * static_cast<double>(values.size()));
  CHECK(together < apart);
}

TEST_CASE("what is not a chunk of the wanted size is refused", "[storage]") {
  const std::vector<std::byte> values = weights(1000);
  ChunkCodec codec;
  const std::span<const std::byte> encoded = codec.encode(values, 4);
  const std::vector<std::byte> stored(encoded.begin(), encoded.end());
  std::vector<std::byte> shorter(values.size() - 4);
  std::vector<std::byte> longer(values.size() + 4);
  std::vector<std::byte> right(values.size());
  CHECK_THROWS_AS(codec.decode(stored, 4, shorter), CheckpointError);
  CHECK_THROWS_AS(codec.decode(stored, 4, longer), CheckpointError);
  CHECK_THROWS_AS(codec.decode(std::span(stored).first(stored.size() / 2), 4, right), CheckpointError);
  CHECK_THROWS_AS(codec.decode({}, 4, right), CheckpointError);
  CHECK(frame_content_bytes(stored) == 4000);
  CHECK(frame_content_bytes(values) == -1);
}
