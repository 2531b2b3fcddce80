// For each chunk of tokens: logits in fp32 by one product, then a block for each token that reads them twice (maximum and sum
// in one pass, the gradient in the other), then the two products of the backward pass. Losses of tokens are kept and added
// up at the end, in double and in a fixed order.
#include "kernels/cross_entropy/cross_entropy_cuda.h"
#include "kernels/gpu/launch.cuh"

namespace longhaul::cuda {
namespace {

using namespace gpu;

// A maximum and the sum of exponentials relative to it.
struct Softmax {
  float top = -INFINITY;
  float sum = 0;

  __device__ void add(float x) {
    if (x > top) {
      sum = sum * expf(top - x) + 1.0f;
      top = x;
    } else {
      sum += expf(x - top);
    }
  }
  // A side that saw nothing has a top of minus infinity and a sum of zero.
  __device__ void merge(float other_top, float other_sum) {
    const float largest = fmaxf(top, other_top);
    if (largest == -INFINITY) {
      return;
    }
    sum = sum * expf(top - largest) + other_sum * expf(other_top - largest);
    top = largest;
  }
};

// Over the block's threads, in every thread.
__device__ Softmax merge_block(Softmax mine) {
  constexpr int kWarps = kThreads / 32;
  __shared__ float tops[kWarps], sums[kWarps];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const float top = __shfl_xor_sync(0xffffffffu, mine.top, distance), sum = __shfl_xor_sync(0xffffffffu, mine.sum, distance);
    mine.merge(top, sum);
  }
  if (threadIdx.x % 32 == 0) {
    tops[threadIdx.x / 32] = mine.top;
    sums[threadIdx.x / 32] = mine.sum;
  }
  __syncthreads();
  Softmax all;
  for (int warp = 0; warp < kWarps; ++warp) {
    all.merge(tops[warp], sums[warp]);
  }
  return all;
}

template <class T>
struct LossRows {
  const float* logits;     // [rows, vocab]
  T* dlogits;              // [rows, vocab], may be the logits; nullptr: loss only
  const int32_t* targets;  // [rows]
  double* losses;          // [rows]
  int64_t vocab;
  float factor;
};

template <class T, int W>
__global__ void __launch_bounds__(kThreads) loss_kernel(LossRows<T> p) {
  const int64_t row = blockIdx.x;
  const float* logits = p.logits + row * p.vocab;
  const int32_t target = p.targets[row];
  T* dlogits = p.dlogits == nullptr ? nullptr : p.dlogits + row * p.vocab;
  float v[W];
  if (target == kIgnoredTarget) {
    for (int64_t c = int64_t{threadIdx.x} * W; dlogits != nullptr && c < p.vocab; c += kThreads * W) {
#pragma unroll
      for (int j = 0; j < W; ++j) {
        v[j] = 0;
      }
      store<W>(dlogits + c, v);
    }
    if (threadIdx.x == 0) {
      p.losses[row] = 0;
    }
    return;
  }
  Softmax mine;
  for (int64_t c = int64_t{threadIdx.x} * W; c < p.vocab; c += kThreads * W) {
    load<W>(logits + c, v);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      mine.add(v[j]);
    }
  }
  const Softmax all = merge_block(mine);
  if (threadIdx.x == 0) {
    const bool exists = target >= 0 && target < p.vocab;
    p.losses[row] = exists ? log(static_cast<double>(all.sum)) - (static_cast<double>(logits[target]) - static_cast<double>(all.top))
                           : static_cast<double>(NAN);
  }
  if (dlogits == nullptr) {
    return;
  }
  __syncthreads();  // logits[target] was read above, and the gradient may be written over the logits
  const float scale = p.factor / all.sum;
  for (int64_t c = int64_t{threadIdx.x} * W; c < p.vocab; c += kThreads * W) {
    load<W>(logits + c, v);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      v[j] = expf(v[j] - all.top) * scale - (c + j == target ? p.factor : 0.0f);
    }
    store<W>(dlogits + c, v);
  }
}

// total += the sum of losses; one block, interleaved sums and then a tree.
__global__ void __launch_bounds__(kThreads) add_losses_kernel(const double* losses, int64_t n, double* total) {
  __shared__ double sums[kThreads];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    sum += losses[i];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    *total += sums[0];
  }
}

template <class T>
void run(ExecContext& ctx, const LinearCrossEntropy& op, const CrossEntropyScratch& scratch) {
  using blas::Transpose;
  CudaContext& cuda = ctx.cuda_context();
  constexpr BlasType kType = std::is_same_v<T, float> ? BlasType::F32 : BlasType::BF16;
  const int64_t tokens = op.x.size(0), hidden = op.x.size(1), vocab = op.weight.size(0);
  const bool wants_gradient = op.dx.is_present() || op.dweight.is_present();
  auto* logits = scratch.logits.data<float>();
  T* dlogits = wants_gradient ? typed<T>(scratch.dlogits) : nullptr;
  const bool wide = vocab % kWidth == 0 && is_aligned({logits, dlogits});
  for (int64_t begin = 0; begin < tokens; begin += op.chunk_tokens) {
    const int64_t rows = std::min(op.chunk_tokens, tokens - begin);
    const T* x = typed<T>(op.x) + begin * hidden;
    cuda.blas().gemm(cuda.stream(), {.tb = Transpose::Yes, .m = rows, .n = vocab, .k = hidden, .in = kType, .a = x, .lda = hidden, .b = op.weight.raw(),
                                     .ldb = hidden, .out = BlasType::F32, .c = logits, .ldc = vocab});
    const LossRows<T> p{logits, dlogits, op.targets.data<int32_t>() + begin, scratch.token_losses.data<double>() + begin, vocab, static_cast<float>(op.grad_scale)};
    if (wide) {
      loss_kernel<T, kWidth><<<static_cast<unsigned>(rows), kThreads, 0, stream_of(ctx)>>>(p);
    } else {
      loss_kernel<T, 1><<<static_cast<unsigned>(rows), kThreads, 0, stream_of(ctx)>>>(p);
    }
    LH_CHECK_LAUNCH(ctx, "linear_cross_entropy");
    if (op.dx.is_present()) {
      cuda.blas().gemm(cuda.stream(), {.m = rows, .n = hidden, .k = vocab, .in = kType, .a = dlogits, .lda = vocab, .b = op.weight.raw(), .ldb = hidden,
                                       .out = kType, .c = typed<T>(op.dx) + begin * hidden, .ldc = hidden});
    }
    if (op.dweight.is_present()) {
      cuda.blas().gemm(cuda.stream(), {.ta = Transpose::Yes, .m = vocab, .n = hidden, .k = rows, .in = kType, .a = dlogits, .lda = vocab, .b = x,
                                       .ldb = hidden, .out = BlasType::F32, .c = op.dweight.data<float>(), .ldc = hidden, .beta = 1});
    }
  }
  add_losses_kernel<<<1, kThreads, 0, stream_of(ctx)>>>(scratch.token_losses.data<double>(), tokens, op.loss_sum.data<double>());
  LH_CHECK_LAUNCH(ctx, "linear_cross_entropy");
}

}  // namespace

void linear_cross_entropy(ExecContext& ctx, const LinearCrossEntropy& op, const CrossEntropyScratch& scratch) {
  dispatch_compute(op.x.dtype(), "linear_cross_entropy", [&](auto zero) { run<decltype(zero)>(ctx, op, scratch); });
}

}  // namespace longhaul::cuda
