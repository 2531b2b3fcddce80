// Tiles of chunk images on their way into shared memory, ahead of the walk that reads them. The order of tiles does not
// depend on the state, so the walk never waits for an address.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/kda/general/arguments.cuh"

namespace longhaul::cuda::kda_general {

// Order: `count()` tiles a chunk, tile(i) the i-th's place in the image, and the step from chunk to chunk (1 or -1).
template <class Order>
class TileStream {
 public:
  static constexpr int kSlots = 4;
  static constexpr int kAhead = kSlots - 2;  // the tile at hand and the one before it stay valid
  static constexpr int kFloats = kSlots * kPanel;

  // `image`: of the first chunk; `stride`: floats from a chunk's image to the next one's.
  __device__ TileStream(Order order, float* slots, const float* image, int64_t stride, int64_t chunks)
      : order_(order), slots_(slots), image_(image), stride_(stride), chunks_(chunks) {
    for (int i = 0; i < kAhead; ++i) {
      issue();
    }
  }
  // The next tile, kPitch floats between rows. All threads of the block must call it; it is a barrier too. Valid until the
  // second call from now.
  __device__ const float* next() {
    __pipeline_wait_prior(kAhead - 1);
    __syncthreads();
    issue();
    const float* tile = slots_ + consumed_ * kPanel;
    consumed_ = (consumed_ + 1) % kSlots;
    return tile;
  }

 private:
  __device__ void issue() {
    if (chunks_ > 0) {
      const float* from = image_ + int64_t{order_.tile(index_)} * kTileFloats;
      float* to = slots_ + issued_ * kPanel;
#pragma unroll
      for (int step = 0; step < kTileFloats / 4 / kThreads; ++step) {
        const int at = step * kThreads + static_cast<int>(threadIdx.x);
        __pipeline_memcpy_async(to + at / 16 * kPitch + at % 16 * 4, from + at * 4, 16);
      }
      issued_ = (issued_ + 1) % kSlots;
      if (++index_ == order_.count()) {
        index_ = 0;
        image_ += Order::kStep * stride_;
        --chunks_;
      }
    }
    __pipeline_commit();
  }

  Order order_;
  float* slots_;
  const float* image_;  // of the chunk whose tiles are issued
  int64_t stride_, chunks_;
  int index_ = 0, issued_ = 0, consumed_ = 0;
};

// k e^G and q e^G in turn; T; A; k e^{G_C - G}: the image as it lies.
struct ForwardOrder {
  static constexpr int kStep = 1;
  ImageLayout image;
  __device__ int count() const { return static_cast<int>(image.tiles()); }
  __device__ int tile(int i) const { return i; }
};

// k e^G; T.
struct ResidualOrder {
  static constexpr int kStep = 1;
  ImageLayout image;
  __device__ int count() const { return image.key_tiles + 1; }
  __device__ int tile(int i) const { return i < image.key_tiles ? image.k_start(i) : image.inverse(); }
};

// A; k e^{G_C - G}; T; k e^G and q e^G in turn; chunks from the last to the first.
struct ReverseOrder {
  static constexpr int kStep = -1;
  ImageLayout image;
  __device__ int count() const { return static_cast<int>(image.tiles()); }
  __device__ int tile(int i) const {
    if (i == 0) {
      return image.scores();
    }
    if (i <= image.key_tiles) {
      return image.k_last(i - 1);
    }
    return i == image.key_tiles + 1 ? image.inverse() : i - image.key_tiles - 2;
  }
};

}  // namespace longhaul::cuda::kda_general
