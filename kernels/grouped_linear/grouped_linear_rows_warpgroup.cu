// Activations of grouped products on Hopper's tensor cores: y = x W^T, or dx (+)= dy W, by tiles of 128 rows of one expert. A
// tile at the end of an expert multiplies the rows of its neighbour too, but does not write them. Blocks next to each other have
// the same rows and different columns, so that rows come from memory once.
#include "kernels/grouped_linear/grouped_linear_warpgroup.h"
#include "kernels/grouped_linear/tensor_map.h"
#include "kernels/grouped_linear/warpgroup_results.cuh"
#include "kernels/grouped_linear/warpgroup_tiles.cuh"

namespace longhaul::cuda {
namespace {

using namespace gpu;
using namespace warpgroup;

struct RowsWork {
  CUtensorMap x, weight, y_map;
  const int64_t* offsets;
  BF16* y;
  int64_t y_stride;
  int experts, columns, column_tiles, steps;
};

// Entry e of the table: the row tiles of the experts before e, and where the rows of e begin; the last entry is the end of all.
// One warp.
[[maybe_unused]] __device__ void fill_table(int2* table, const int64_t* offsets, int experts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;
  for (int base = 0; base < experts; base += 32) {
    const int expert = base + lane;
    const int begin = static_cast<int>(offsets[min(expert, experts)]), end = static_cast<int>(offsets[min(expert + 1, experts)]);
    const int tiles = (end - begin + kTileRows - 1) / kTileRows;
    int upto = tiles;  // of this lane and those before it
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, upto, distance);
      upto += lane >= distance ? other : 0;
    }
    if (expert < experts) {
      table[expert] = make_int2(before + upto - tiles, begin);
    }
    before += __shfl_sync(0xffffffffu, upto, 31);
  }
  if (lane == 0) {
    table[experts] = make_int2(before, static_cast<int>(offsets[experts]));
  }
}

// Calls fn(expert, first row, rows, first column) for the tiles of this block.
template <int N, class Fn>
__device__ __forceinline__ void for_each_tile(const int2* table, const RowsWork& p, Fn&& fn) {
  const int tiles = table[p.experts].x * p.column_tiles;
  int expert = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    const int row_tile = tile / p.column_tiles;
    while (table[expert + 1].x <= row_tile) {
      ++expert;
    }
    const int first = table[expert].y + (row_tile - table[expert].x) * kTileRows;
    fn(expert, first, table[expert + 1].y - first, tile % p.column_tiles * N);
  }
}

template <int N, Along kWeight>
__device__ __forceinline__ void produce_rows(const int2* table, const RowsWork& p, Ring<N> ring) {
  prefetch_map(p.x);
  prefetch_map(p.weight);
  for_each_tile<N>(table, p, [&](int expert, int first, int, int column) {
    for (int step = 0; step < p.steps; ++step, ring.advance()) {
      ring.open();
      copy_box(ring.left(), p.x, ring.full(), step * kDepth, first);
      if constexpr (kWeight == Along::K) {
        copy_box(ring.right(), p.weight, ring.full(), step * kDepth, column, expert);
      } else {
#pragma unroll
        for (int slab = 0; slab < N / kSlabWidth; ++slab) {
          copy_box(ring.right() + slab * kSlabBytes, p.weight, ring.full(), column + slab * kSlabWidth, step * kDepth, expert);
        }
      }
    }
  });
}

template <int N, Along kWeight, Accumulate kInto>
__device__ __forceinline__ void consume_rows(const int2* table, const RowsWork& p, Ring<N> ring) {
  const Consumer me;
  const Results results{ring.base + Shared<N>::kResults + static_cast<uint32_t>(me.warp) * kWarpBytes};
  for_each_tile<N>(table, p, [&](int, int first, int rows, int column) {
    const WarpRows to{p.y, p.y_stride, first + me.warp * 16, rows - me.warp * 16, column, p.columns - column};
    OldRows<kInto> old;
    old.load(0, to, me);
    old.prefetch(N / kSlabWidth, to, me);
    float sums[N / 2];
    multiply_tile<N, Along::K, kWeight>(sums, ring, p.steps, me, [](int, const Ring<N>&) {});
    write_rows<N, kInto>(sums, old, results, p.y_map, to, me);
  });
  finish_stores();
}

template <int N, Along kWeight, Accumulate kInto>
__global__ void __launch_bounds__(kBlockThreads, 1) rows_warpgroup_kernel(const __grid_constant__ RowsWork p) {
#if LH_WARPGROUP_KERNELS
  extern __shared__ __align__(1024) unsigned char memory[];
  int2* table = reinterpret_cast<int2*>(memory + Shared<N>::kTable);
  Ring<N> ring(address_of(memory));
  if (threadIdx.x < 32) {
    fill_table(table, p.offsets, p.experts);
  }
  if (threadIdx.x == 32) {
    ring.init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    fewer_registers<24>();
    if (threadIdx.x == 0) {
      produce_rows<N, kWeight>(table, p, ring);
    }
  } else {
    more_registers<240>();
    consume_rows<N, kWeight, kInto>(table, p, ring);
  }
#endif
}

template <int N, Along kWeight, Accumulate kInto>
void start(ExecContext& ctx, const char* op, const RowsWarpgroup& a) {
  const int64_t experts = a.weight.size(0), out = a.weight.size(1), in = a.weight.size(2), rows = a.x.size(0);
  const int64_t columns = a.y.size(1), column_tiles = ceil_div(columns, N);
  const auto boxes = [&](const TensorView& view, int box_rows) {
    return make_tensor_map({.data = typed<BF16>(view), .columns = view.size(1), .rows = rows, .row_stride = view.stride(0),
                            .box_columns = kSlabWidth, .box_rows = box_rows});
  };
  const RowsWork p{
      .x = boxes(a.x, kTileRows),
      .weight = make_tensor_maps({.data = typed<BF16>(a.weight), .columns = in, .rows = out, .row_stride = in, .box_columns = kSlabWidth,
                                  .box_rows = kWeight == Along::K ? N : kDepth, .matrices = experts, .matrix_stride = out * in}),
      .y_map = boxes(a.y, 16),
      .offsets = a.offsets.data<int64_t>(),
      .y = typed<BF16>(a.y),
      .y_stride = a.y.stride(0),
      .experts = static_cast<int>(experts),
      .columns = static_cast<int>(columns),
      .column_tiles = static_cast<int>(column_tiles),
      .steps = static_cast<int>(ceil_div(a.x.size(1), kDepth))};
  const int64_t most_tiles = (ceil_div(rows, kTileRows) + experts) * column_tiles;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(most_tiles, ctx.cuda_context().multiprocessors()));
  const int64_t bytes = Shared<N>::bytes(experts);
  allow_shared(rows_warpgroup_kernel<N, kWeight, kInto>, bytes);
  rows_warpgroup_kernel<N, kWeight, kInto><<<blocks, kBlockThreads, static_cast<size_t>(bytes), stream_of(ctx)>>>(p);
  LH_CHECK_LAUNCH(ctx, op);
}

template <int N>
void start_with(ExecContext& ctx, const char* op, const RowsWarpgroup& a) {
  if (a.use == WeightUse::Forward) {
    start<N, Along::K, Accumulate::Overwrite>(ctx, op, a);
  } else if (a.accumulate == Accumulate::Overwrite) {
    start<N, Along::Other, Accumulate::Overwrite>(ctx, op, a);
  } else {
    start<N, Along::Other, Accumulate::Add>(ctx, op, a);
  }
}

}  // namespace

void rows_warpgroup(ExecContext& ctx, const char* op, const RowsWarpgroup& p) {
  // Tiles of 256 columns read less for each product, unless half of the last one would be empty.
  if (p.y.size(1) % 256 == 0 || p.y.size(1) % 256 > 128) {
    start_with<256>(ctx, op, p);
  } else {
    start_with<128>(ctx, op, p);
  }
}

}  // namespace longhaul::cuda
