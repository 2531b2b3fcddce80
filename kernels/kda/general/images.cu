// The images of chunks (layout.h): decayed keys and queries, the scores A within the chunk, and the inverse of I + L. One block
// for a chunk and head; nothing here depends on the state.
#include "kernels/kda/general/scores.cuh"

namespace longhaul::cuda::kda_general {
namespace {

template <class T>
struct Images {
  Grid grid;
  Inputs<T> in;
  float* images;
};

// Fills the panels and the image's tiles for 64 channels. Ends without a barrier.
template <KdaTiles kTiles, class T>
__device__ void decay_channels(const Images<T>& p, int64_t first_token, int rows, int64_t head, int key_tile, float* panels,
                               ImageSmall& small, float* image) {
  const int c = ColumnDecay::channel(), tile = ColumnDecay::tile();
  const int64_t key = key_tile * kKeys + c;
  ColumnDecay decay;
  float q[kTile], k[kTile], to_end[kTile];
  decay.load(p.grid, p.in.g, first_token, rows, head, key);
  load_column(p.grid, p.in.q, first_token, rows, head, key, q);
  load_column(p.grid, p.in.k, first_token, rows, head, key, k);
  decay.share(small.decay);
  decay.to_end(to_end);
  __syncthreads();  // also: the products of the last channels are done with the panels
  const ImageLayout& at = p.grid.image;
  float* k_start = image + int64_t{at.k_start(key_tile)} * kTileFloats;
  float* q_start = image + int64_t{at.q_start(key_tile)} * kTileFloats;
  float* k_last = image + int64_t{at.k_last(key_tile)} * kTileFloats;
  const float start = small.decay.before(tile, c) * decay.alpha[0], after = small.decay.after(tile, c);
  float from_first = 1;
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
    const int row = tile * kTile + r, element = row * kPitch + c;
    from_first = r == 0 ? 1.0f : from_first * decay.alpha[r];
    q[r] *= p.in.scale;
    panels[kQFirst * kPanel + element] = q[r] * from_first;
    panels[kKFirst * kPanel + element] = k[r] * from_first;
    panels[kKEnd * kPanel + element] = k[r] * to_end[r];
    if constexpr (kTiles == KdaTiles::Dense) {
      panels[kDiagonal * kPanel + element] = k[r] * (1.0f / from_first);
    } else {
      panels[kDiagonal * kPanel + element] = decay.alpha[r];
      panels[kQ * kPanel + element] = q[r];
      panels[kK * kPanel + element] = k[r];
    }
    k_start[row * kKeys + c] = k[r] * (start * from_first);
    q_start[row * kKeys + c] = q[r] * (start * from_first);
    k_last[row * kKeys + c] = k[r] * (to_end[r] * after);
  }
  if (tile == 3) {
    image[at.total() + key] = small.decay.before(3, c) * small.decay.total[3][c];
  }
  for (int e = static_cast<int>(threadIdx.x); e < kPairs * kKeys; e += kThreads) {
    const int pair = e / kKeys;
    small.between[pair][e % kKeys] = small.decay.between(column_tile(pair), row_tile(pair), e % kKeys);
  }
}

template <class T, KdaTiles kTiles>
__global__ void __launch_bounds__(kThreads, 2) images_kernel(Images<T> p) {
  extern __shared__ float4 shared[];
  float* panels = reinterpret_cast<float*>(shared);
  ImageSmall& small = *reinterpret_cast<ImageSmall*>(panels + (kTiles == KdaTiles::Dense ? 4 : 6) * kPanel);
  const int64_t chunk = p.grid.group_begin + blockIdx.x, head = blockIdx.y;
  if (chunk >= p.grid.num_chunks()) {
    return;
  }
  const int64_t first_token = p.grid.first_token(chunk);
  const int rows = p.grid.rows(chunk), tid = static_cast<int>(threadIdx.x), group = tid / 64;
  float* image = p.images + p.grid.scratch_offset(chunk, head, p.grid.image.floats());
  if (tid < kChunk) {
    small.beta[tid] = tid < rows ? p.in.beta[(first_token + tid) * p.grid.heads + head] : 0.0f;
  }
  ScorePart below[2];
  std::conditional_t<kTiles == KdaTiles::Dense, ScorePart, PairwisePart> diagonal;
  const float *q_first = panels + kQFirst * kPanel, *k_first = panels + kKFirst * kPanel;
  for (int key_tile = 0; key_tile < p.grid.image.key_tiles; ++key_tile) {
    decay_channels<kTiles>(p, first_token, rows, head, key_tile, panels, small, image);
    __syncthreads();
    if constexpr (kTiles == KdaTiles::Dense) {
      const int begin = group * kTile * kPitch;
      diagonal.template add<false>(k_first + begin, q_first + begin, panels + kDiagonal * kPanel + begin, nullptr);
    } else {
      diagonal.add(panels);
    }
#pragma unroll
    for (int round = 0; round < 2; ++round) {
      const int pair = 4 * round + group;
      if (pair < kPairs) {
        const int row = row_tile(pair) * kTile * kPitch, column = column_tile(pair) * kTile * kPitch;
        below[round].template add<true>(k_first + row, q_first + row, panels + kKEnd * kPanel + column, small.between[pair]);
      }
    }
  }
  __syncthreads();
  for (int at = tid; at < 3 * kPanel; at += kThreads) {
    panels[at] = 0;
  }
  __syncthreads();
  float *l = panels + kL * kPanel, *a = panels + kA * kPanel, *inverse = panels + kInverse * kPanel;
  if constexpr (kTiles == KdaTiles::Dense) {
    diagonal.store(l, a, group, group, small.beta);
  } else {
    diagonal.store(l, a, small.beta);
  }
#pragma unroll
  for (int round = 0; round < 2; ++round) {
    const int pair = 4 * round + group;
    if (pair < kPairs) {
      below[round].store(l, a, row_tile(pair), column_tile(pair), small.beta);
    }
  }
  __syncthreads();
  invert(l, inverse, panels + kWork * kPanel);
  store_tile(inverse, image + int64_t{p.grid.image.inverse()} * kTileFloats);
  store_tile(a, image + int64_t{p.grid.image.scores()} * kTileFloats);
}

}  // namespace

template <class T>
void make_images(ExecContext& ctx, const Grid& grid, const Inputs<T>& in, KdaTiles tiles, float* images) {
  const auto launch = [&](auto* kernel) {
    const int64_t bytes = image_shared_bytes(tiles);
    gpu::allow_shared(kernel, bytes);
    const dim3 blocks(static_cast<unsigned>(grid.group_chunks), static_cast<unsigned>(grid.heads));
    kernel<<<blocks, kThreads, static_cast<size_t>(bytes), gpu::stream_of(ctx)>>>({grid, in, images});
    LH_CHECK_LAUNCH(ctx, "kda images");
  };
  if (tiles == KdaTiles::Dense) {
    launch(images_kernel<T, KdaTiles::Dense>);
  } else {
    launch(images_kernel<T, KdaTiles::Pairwise>);
  }
}

template void make_images<float>(ExecContext&, const Grid&, const Inputs<float>&, KdaTiles, float*);
template void make_images<BF16>(ExecContext&, const Grid&, const Inputs<BF16>&, KdaTiles, float*);

}  // namespace longhaul::cuda::kda_general
