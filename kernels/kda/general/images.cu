// The chunk table, and the images of chunks (layout.h): decayed keys and queries, the scores A within the chunk, and the
// inverse of I + L. One block for a chunk and head; nothing here depends on the state.
#include "kernels/kda/general/decay.cuh"
#include "kernels/kda/general/products.cuh"

namespace longhaul::cuda::kda_general {
namespace {

constexpr int kTableThreads = 1024;

// first_chunks[d]: chunks of all documents before d. One block; each thread adds up consecutive documents, then an inclusive
// scan over threads.
__global__ void __launch_bounds__(kTableThreads) count_chunks_kernel(const int64_t* bounds, int64_t documents, int64_t max_chunks, int64_t* first_chunks) {
  __shared__ int64_t sums[kTableThreads];
  const auto chunks_of = [&](int64_t d) { return gpu::ceil_div(max(bounds[d + 1] - bounds[d], int64_t{0}), kChunk); };
  const int64_t each = gpu::ceil_div(documents, kTableThreads), begin = min(threadIdx.x * each, documents), end = min(begin + each, documents);
  int64_t sum = 0;
  for (int64_t d = begin; d < end; ++d) {
    sum += chunks_of(d);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int distance = 1; distance < kTableThreads; distance *= 2) {
    const int64_t other = static_cast<int>(threadIdx.x) >= distance ? sums[threadIdx.x - distance] : 0;
    __syncthreads();
    sums[threadIdx.x] += other;
    __syncthreads();
  }
  int64_t before = sums[threadIdx.x] - sum;
  for (int64_t d = begin; d < end; ++d) {
    first_chunks[d] = min(before, max_chunks);
    before += chunks_of(d);
  }
  if (threadIdx.x == 0) {
    first_chunks[documents] = min(sums[kTableThreads - 1], max_chunks);
  }
}

__global__ void __launch_bounds__(kThreads) list_chunks_kernel(const int64_t* bounds, int64_t documents, const int64_t* first_chunks, int64_t* chunks) {
  const int64_t chunk = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (chunk >= first_chunks[documents]) {
    return;
  }
  int64_t low = 0, high = documents;  // the last document whose chunks begin at or before this one; empty ones come earlier
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (first_chunks[middle] <= chunk) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t token = bounds[low] + (chunk - first_chunks[low]) * kChunk;
  chunks[2 * chunk] = token;
  chunks[2 * chunk + 1] = min(int64_t{kChunk}, bounds[low + 1] - token);
}

// Shared memory of a block. Panels are [64, kPitch]; those of the scores follow once the loop over channels is done.
enum Panel : int { kQFirst, kKFirst, kKEnd, kDiagonal, kQ, kK };  // kDiagonal: 1 / from_first times k, or alpha
enum ScorePanel : int { kL, kA, kInverse, kWork };
constexpr int kPairs = 6;                                         // tile pairs below the diagonal

struct Small {
  TileDecay decay;
  float between[kPairs][kKeys];
  float beta[kChunk];
};

constexpr int64_t shared_bytes(KdaTiles tiles) {
  return static_cast<int64_t>(sizeof(float)) * kPanel * (tiles == KdaTiles::Dense ? 4 : 6) + static_cast<int64_t>(sizeof(Small));
}

// Tile pairs in the order in which groups of 64 threads take them: (1,0) (2,1) (3,2) (2,0) | (3,1) (3,0).
__device__ inline int row_tile(int pair) { return 0x332321 >> (4 * pair) & 0xf; }
__device__ inline int column_tile(int pair) { return 0x010210 >> (4 * pair) & 0xf; }

// A thread's part of a score tile: rows r and r + 8, columns c and c + 8.
struct ScorePart {
  float l[2][2] = {};
  float a[2][2] = {};

  __device__ static int row() { return static_cast<int>(threadIdx.x) % 64 / 8; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % 8; }

  // += rows of k_first and q_first with rows of `keys`, each key channel times its factor.
  template <bool kFactors>
  __device__ void add(const float* k_first, const float* q_first, const float* keys, const float* factors) {
    k_first += row() * kPitch;
    q_first += row() * kPitch;
    keys += column() * kPitch;
#pragma unroll 2
    for (int p = 0; p < kKeys; p += 4) {
      float4 right[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        right[j] = load4(keys + 8 * j * kPitch + p);
        if constexpr (kFactors) {
          const float4 f = load4(factors + p);
          right[j] = make_float4(right[j].x * f.x, right[j].y * f.y, right[j].z * f.z, right[j].w * f.w);
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float4 left_k = load4(k_first + 8 * r * kPitch + p), left_q = load4(q_first + 8 * r * kPitch + p);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          l[r][j] = add_dot(left_k, right[j], l[r][j]);
          a[r][j] = add_dot(left_q, right[j], a[r][j]);
        }
      }
    }
  }
  // To the panels at tile (i, j); what lies above the diagonal stays zero.
  __device__ void store(float* panel_l, float* panel_a, int i, int j, const float* beta) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int row_at = kTile * i + row() + 8 * r, column_at = kTile * j + column() + 8 * c;
        panel_l[row_at * kPitch + column_at] = row_at > column_at ? beta[row_at] * l[r][c] : 0.0f;
        panel_a[row_at * kPitch + column_at] = row_at >= column_at ? a[r][c] : 0.0f;
      }
    }
  }
};

// A diagonal tile with unbounded gates: for a column j the key decays from row to row. A thread has one column and every
// fourth group of four channels.
struct PairwisePart {
  float l[kTile] = {};
  float a[kTile] = {};

  __device__ static int tile() { return static_cast<int>(threadIdx.x) / 64; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % 64 / 4; }
  __device__ static int part() { return static_cast<int>(threadIdx.x) % 4; }

  __device__ void add(const float* panels) {
    const int begin = tile() * kTile * kPitch;
    const float *q = panels + kQ * kPanel + begin, *k = panels + kK * kPanel + begin, *alpha = panels + kDiagonal * kPanel + begin;
    for (int p = 4 * part(); p < kKeys; p += 16) {
      float4 decayed = load4(k + column() * kPitch + p);
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
        if (i < column()) {
          continue;
        }
        if (i > column()) {
          const float4 f = load4(alpha + i * kPitch + p);
          decayed = make_float4(decayed.x * f.x, decayed.y * f.y, decayed.z * f.z, decayed.w * f.w);
        }
        l[i] = add_dot(load4(k + i * kPitch + p), decayed, l[i]);
        a[i] = add_dot(load4(q + i * kPitch + p), decayed, a[i]);
      }
    }
  }
  __device__ void store(float* panel_l, float* panel_a, const float* beta) {
    const int j = tile() * kTile + column();
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      const int row = tile() * kTile + i;
      l[i] += __shfl_xor_sync(0xffffffffu, l[i], 1);
      l[i] += __shfl_xor_sync(0xffffffffu, l[i], 2);
      a[i] += __shfl_xor_sync(0xffffffffu, a[i], 1);
      a[i] += __shfl_xor_sync(0xffffffffu, a[i], 2);
      if (part() == 0) {
        panel_l[row * kPitch + j] = row > j ? beta[row] * l[i] : 0.0f;
        panel_a[row * kPitch + j] = row >= j ? a[i] : 0.0f;
      }
    }
  }
};

// T = (I + L)^-1 by substitution inside the tiles on the diagonal, and products below them. Never a Neumann series: its
// powers grow like binomials when keys are nearly parallel and beta is near 1. `inverse` must be zero on entry.
__device__ void invert(const float* l, float* inverse, float* work) {
  const int tid = static_cast<int>(threadIdx.x);
  if (tid < kChunk) {
    const int tile = tid / kTile, j = tid % kTile;
    const float* rows = l + tile * kTile * (kPitch + 1);
    float x[kTile];
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      float sum = i == j ? 1.0f : 0.0f;
#pragma unroll
      for (int m = 0; m < i; ++m) {
        sum = fmaf(-rows[i * kPitch + m], x[m], sum);
      }
      x[i] = i >= j ? sum : 0.0f;
      inverse[(tile * kTile + i) * kPitch + tile * kTile + j] = x[i];
    }
  }
  __syncthreads();
  const int r = tid / kTile, c = tid % kTile;
  for (int i = 1; i < 4; ++i) {
    const int row = i * kTile + r;
    for (int j = 0; j < i; ++j) {  // work = L T, for the tiles of this row
      const int column = j * kTile + c;
      float sum = 0;
      for (int m = j * kTile; m < i * kTile; ++m) {
        sum = fmaf(l[row * kPitch + m], inverse[m * kPitch + column], sum);
      }
      work[r * kPitch + column] = sum;
    }
    __syncthreads();
    for (int j = 0; j < i; ++j) {
      const int column = j * kTile + c;
      float sum = 0;
      for (int m = 0; m <= r; ++m) {
        sum = fmaf(-inverse[row * kPitch + i * kTile + m], work[m * kPitch + column], sum);
      }
      inverse[row * kPitch + column] = sum;
    }
    __syncthreads();
  }
}

__device__ void store_tile(const float* panel, float* tile) {
#pragma unroll
  for (int step = 0; step < kTileFloats / 4 / kThreads; ++step) {
    const int at = step * kThreads + static_cast<int>(threadIdx.x);
    store4(tile + at * 4, load4(panel + at / 16 * kPitch + at % 16 * 4));
  }
}

template <class T>
struct Images {
  Grid grid;
  Inputs<T> in;
  float* images;
};

// Fills the panels and the image's tiles for 64 channels. Ends without a barrier.
template <KdaTiles kTiles, class T>
__device__ void decay_channels(const Images<T>& p, int64_t first_token, int rows, int64_t head, int key_tile, float* panels, Small& small, float* image) {
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
  Small& small = *reinterpret_cast<Small*>(panels + (kTiles == KdaTiles::Dense ? 4 : 6) * kPanel);
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

void make_chunks(ExecContext& ctx, const TensorView& cu_seqlens, int64_t tokens, const KdaScratch& scratch) {
  const int64_t documents = cu_seqlens.size(0) - 1, max_chunks = kda_max_chunks(tokens, documents);
  const auto* bounds = cu_seqlens.data<int64_t>();
  auto* first_chunks = scratch.first_chunks.data<int64_t>();
  count_chunks_kernel<<<1, kTableThreads, 0, gpu::stream_of(ctx)>>>(bounds, documents, max_chunks, first_chunks);
  LH_CHECK_LAUNCH(ctx, "kda chunk counts");
  if (max_chunks > 0) {
    const auto blocks = static_cast<unsigned>(gpu::ceil_div(max_chunks, kThreads));
    list_chunks_kernel<<<blocks, kThreads, 0, gpu::stream_of(ctx)>>>(bounds, documents, first_chunks, scratch.chunks.data<int64_t>());
    LH_CHECK_LAUNCH(ctx, "kda chunk list");
  }
}

template <class T>
void make_images(ExecContext& ctx, const Grid& grid, const Inputs<T>& in, KdaTiles tiles, float* images) {
  const auto launch = [&](auto* kernel) {
    const int64_t bytes = shared_bytes(tiles);
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
