// Forward gathers rows. Backward sorts tokens by id with a stable sort and adds the rows of equal ids in token order, one
// block for each id, so that the result repeats bit for bit.
#include "kernels/embedding/embedding_cuda.h"
#include "kernels/gpu/counting_sort.h"
#include "kernels/gpu/launch.cuh"

namespace longhaul::cuda {
namespace {

using namespace gpu;

template <class T>
struct Gather {
  const int32_t* ids;
  const T* table;
  T* y;
  int64_t vocab, hidden;
  template <int W>
  __device__ void apply(int64_t i) const {
    const int64_t t = i / hidden, c = i % hidden;
    const int32_t id = ids[t];
    float v[W];
#pragma unroll
    for (int j = 0; j < W; ++j) {
      v[j] = __int_as_float(0x7fc00000);
    }
    if (id >= 0 && id < vocab) {
      load<W>(table + id * hidden + c, v);
    }
    store<W>(y + i, v);
  }
};

// Keys in token order; ids outside the table come last, as `vocab`.
struct Start {
  const int32_t* ids;
  int32_t *keys, *order;
  int32_t vocab;
  template <int W>
  __device__ void apply(int64_t i) const {
    keys[i] = ids[i] >= 0 && ids[i] < vocab ? ids[i] : vocab;
    order[i] = static_cast<int32_t>(i);
  }
};

struct Scatter {
  const int32_t *keys, *order;
  const int64_t* places;
  int32_t *sorted_keys, *sorted_order;
  template <int W>
  __device__ void apply(int64_t i) const {
    const int64_t at = places[i];
    sorted_keys[at] = keys[i];
    sorted_order[at] = order[i];
  }
};

// A block for each place in the sorted order; only those where an id begins have work.
template <class T, int W>
__global__ void __launch_bounds__(kThreads) add_rows_kernel(const int32_t* keys, const int32_t* order, int64_t tokens, const T* dy, float* dtable,
                                                            int64_t vocab, int64_t hidden) {
  const int64_t begin = blockIdx.x;
  const int32_t id = keys[begin];
  if ((begin > 0 && keys[begin - 1] == id) || id >= vocab) {
    return;
  }
  for (int64_t c = int64_t{threadIdx.x} * W; c < hidden; c += kThreads * W) {
    float sum[W], v[W];
    load<W>(dtable + id * hidden + c, sum);
    for (int64_t i = begin; i < tokens && keys[i] == id; ++i) {
      load<W>(dy + order[i] * hidden + c, v);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        sum[j] += v[j];
      }
    }
    store<W>(dtable + id * hidden + c, sum);
  }
}

}  // namespace

void embedding_forward(ExecContext& ctx, const EmbeddingForward& op) {
  dispatch_compute(op.table.dtype(), "embedding_forward", [&](auto zero) {
    using T = decltype(zero);
    launch_each(ctx, "embedding_forward", op.y.numel(), is_wide({&op.table, &op.y}),
                Gather<T>{op.ids.data<int32_t>(), typed<T>(op.table), typed<T>(op.y), op.table.size(0), op.table.size(1)});
  });
}

void embedding_backward(ExecContext& ctx, const EmbeddingBackward& op, const EmbeddingScratch& scratch) {
  const int64_t tokens = op.ids.size(0), vocab = op.dtable.size(0), hidden = op.dtable.size(1);
  if (tokens == 0 || hidden == 0) {
    return;
  }
  auto *keys = scratch.keys.data<int32_t>(), *next_keys = scratch.other_keys.data<int32_t>();
  auto *order = scratch.order.data<int32_t>(), *next_order = scratch.other_order.data<int32_t>();
  auto* places = scratch.places.data<int64_t>();
  launch_singly(ctx, "embedding_backward", tokens, Start{op.ids.data<int32_t>(), keys, order, static_cast<int32_t>(vocab)});
  for (int32_t shift = 0; shift < 31 && vocab >> shift != 0; shift += static_cast<int32_t>(kDigitBits)) {
    counting_sort(ctx, {.keys = keys, .n = tokens, .buckets = kDigitBuckets, .shift = shift, .mask = static_cast<int32_t>(kDigitBuckets - 1),
                        .counts = scratch.counts, .offsets = scratch.offsets.data<int64_t>(), .places = places});
    launch_singly(ctx, "embedding_backward", tokens, Scatter{keys, order, places, next_keys, next_order});
    std::swap(order, next_order);
    std::swap(keys, next_keys);
  }
  dispatch_compute(op.dy.dtype(), "embedding_backward", [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto w) {
      add_rows_kernel<T, w()><<<static_cast<unsigned>(tokens), kThreads, 0, stream_of(ctx)>>>(keys, order, tokens, typed<T>(op.dy),
                                                                                             op.dtable.data<float>(), vocab, hidden);
    };
    if (is_wide({&op.dy, &op.dtable})) {
      launch(std::integral_constant<int, kWidth>{});
    } else {
      launch(std::integral_constant<int, 1>{});
    }
  });
  LH_CHECK_LAUNCH(ctx, "embedding_backward");
}

}  // namespace longhaul::cuda
