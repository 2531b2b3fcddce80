// Weight gradients of grouped products on Hopper's tensor cores: dW[e] += dy^T x over the rows of e, by tiles of 128 x N of one
// expert's weight. The inner dimension is the rows, which lie across both factors, and an expert's last stage holds rows of its
// neighbour or of nobody: they are overwritten with zeros in shared memory. A tile is summed by one block in the order of its
// rows, and each element is added to the gradient once, so results repeat bit for bit.
#include "kernels/grouped_linear/grouped_linear_warpgroup.h"
#include "kernels/grouped_linear/tensor_map.h"
#include "kernels/grouped_linear/warpgroup_order.cuh"
#include "kernels/grouped_linear/warpgroup_sums.cuh"
#include "kernels/grouped_linear/warpgroup_tiles.cuh"

namespace longhaul::cuda {
namespace {

using namespace gpu;
using namespace warpgroup;

struct WeightWork {
  CUtensorMap dy, x;
  const int64_t* offsets;
  float* dweight;  // [experts, out, in]
  int experts, out, in, row_tiles, column_tiles, tiles;  // row tiles along out, column tiles along in, tiles of all experts
};

// Calls fn(expert, first row of its rows, rows, first of out, first of in) for the tiles of this block that have rows.
template <int N, class Fn>
__device__ __forceinline__ void for_each_tile(const Order& order, const WeightWork& p, Fn&& fn) {
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  for (int round = 0; round * blocks < p.tiles; ++round) {
    const int tile = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
    if (tile >= p.tiles) {
      continue;
    }
    const int column = tile % p.column_tiles, rest = tile / p.column_tiles, row = rest % p.row_tiles;
    const int expert = order.experts[rest / p.row_tiles], rows = order.rows[expert];
    if (rows > 0) {
      fn(expert, static_cast<int>(p.offsets[expert]), rows, row * kTileRows, column * N);
    }
  }
}

template <int N>
__device__ __forceinline__ void produce(const Order& order, const WeightWork& p, Ring<N> ring) {
  prefetch_map(p.dy);
  prefetch_map(p.x);
  for_each_tile<N>(order, p, [&](int, int begin, int rows, int first_out, int first_in) {
    for (int row = 0; row < rows; row += kDepth, ring.advance()) {
      ring.open();
#pragma unroll
      for (int slab = 0; slab < kTileRows / kSlabWidth; ++slab) {
        copy_box(ring.left() + slab * kSlabBytes, p.dy, ring.full(), first_out + slab * kSlabWidth, begin + row);
      }
#pragma unroll
      for (int slab = 0; slab < N / kSlabWidth; ++slab) {
        copy_box(ring.right() + slab * kSlabBytes, p.x, ring.full(), first_in + slab * kSlabWidth, begin + row);
      }
    }
  });
}

// Zeros in rows [rows, 64) of all slabs of a stage. All threads of the consumers.
template <int N>
__device__ __forceinline__ void clear_tail(const Ring<N>& ring, int rows) {
  constexpr int kSlabs = (kTileRows + N) / kSlabWidth, kUnits = kRowBytes / 16;
  const int missing = kDepth - rows;
  for (int i = static_cast<int>(threadIdx.x) - 128; i < kSlabs * missing * kUnits; i += kConsumerThreads) {
    const int unit = i % kUnits, row = i / kUnits % missing, slab = i / kUnits / missing;
    const uint32_t at = ring.left() + static_cast<uint32_t>(slab * kSlabBytes + (rows + row) * kRowBytes + unit * 16);
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
  }
  fence_stores();
  asm volatile("bar.sync 1, %0;" ::"n"(kConsumerThreads) : "memory");
}

template <int N>
__device__ __forceinline__ void consume(const Order& order, const WeightWork& p, Ring<N> ring) {
  const Consumer me;
  for_each_tile<N>(order, p, [&](int expert, int, int rows, int first_out, int first_in) {
    float sums[N / 2];
    const int steps = (rows + kDepth - 1) / kDepth;
    multiply_tile<N, Along::Other, Along::Other>(sums, ring, steps, me, [&](int step, const Ring<N>& at) {
      if (rows - step * kDepth < kDepth) {
        clear_tail(at, rows - step * kDepth);
      }
    });
    add_sums<N>(sums, {p.dweight + int64_t{expert} * p.out * p.in, p.out, p.in}, first_out + me.warp * 16 + me.row, first_in, me);
  });
}

template <int N>
__global__ void __launch_bounds__(kBlockThreads, 1) weight_warpgroup_kernel(const __grid_constant__ WeightWork p) {
#if LH_WARPGROUP_KERNELS
  extern __shared__ __align__(1024) unsigned char memory[];
  const Order order = Order::in(reinterpret_cast<int*>(memory + Shared<N>::kTable), p.experts);
  Ring<N> ring(address_of(memory));
  order.fill(p.offsets, p.experts);
  if (threadIdx.x == 0) {
    ring.init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    fewer_registers<24>();
    if (threadIdx.x == 0) {
      produce(order, p, ring);
    }
  } else {
    more_registers<240>();
    consume(order, p, ring);
  }
#endif
}

template <int N>
void start(ExecContext& ctx, const char* op, const WeightWarpgroup& a) {
  const int64_t experts = a.dweight.size(0), out = a.dweight.size(1), in = a.dweight.size(2), rows = a.x.size(0);
  const int64_t row_tiles = ceil_div(out, kTileRows), column_tiles = ceil_div(in, N), tiles = experts * row_tiles * column_tiles;
  const auto boxes = [&](const TensorView& view) {
    return make_tensor_map({.data = typed<BF16>(view), .columns = view.size(1), .rows = rows, .row_stride = view.stride(0),
                            .box_columns = kSlabWidth, .box_rows = kDepth});
  };
  const WeightWork p{.dy = boxes(a.dy),
                     .x = boxes(a.x),
                     .offsets = a.offsets.data<int64_t>(),
                     .dweight = a.dweight.data<float>(),
                     .experts = static_cast<int>(experts),
                     .out = static_cast<int>(out),
                     .in = static_cast<int>(in),
                     .row_tiles = static_cast<int>(row_tiles),
                     .column_tiles = static_cast<int>(column_tiles),
                     .tiles = static_cast<int>(tiles)};
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(tiles, ctx.cuda_context().multiprocessors()));
  const int64_t bytes = Shared<N>::bytes(experts);
  allow_shared(weight_warpgroup_kernel<N>, bytes);
  weight_warpgroup_kernel<N><<<blocks, kBlockThreads, static_cast<size_t>(bytes), stream_of(ctx)>>>(p);
  LH_CHECK_LAUNCH(ctx, op);
}

}  // namespace

void weight_warpgroup(ExecContext& ctx, const char* op, const WeightWarpgroup& p) {
  if (p.dweight.size(2) % 256 == 0 || p.dweight.size(2) % 256 > 128) {
    start<256>(ctx, op, p);
  } else {
    start<128>(ctx, op, p);
  }
}

}  // namespace longhaul::cuda
