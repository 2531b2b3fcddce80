// A block for a token, or a warp where rows are short (attn_res_mix_warp.cuh). The sources are read once from memory for norms
// and scores, and once more, out of the caches, for the mix; their rows of one token are a few kilobytes. In backward a block
// walks over its share of the tokens and keeps the gradient of norm_scale * query in shared memory.
#include "kernels/attn_res_mix/attn_res_mix_cuda.h"
#include "kernels/attn_res_mix/attn_res_mix_warp.cuh"
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/partial_sums.h"

namespace longhaul::cuda {
namespace {

using namespace gpu;
using attn_res_mix::Gradients;
using attn_res_mix::kMaxSources;
using attn_res_mix::Sources;

constexpr int kWarps = kThreads / 32;

// Of the token at hand.
struct Shared {
  float sums[kMaxSources][3][kWarps];  // of v^2, a v and dy v
  float inv_rms[kMaxSources], score[kMaxSources], dy_v[kMaxSources];
  float p[kMaxSources];
};

// Fills p, inv_rms and score, and dy_v when dy is given. All threads of the block take part; ends with a barrier.
template <int W, class T>
__device__ void weigh(const Sources<T>& in, int64_t token, const T* dy, Shared& s) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = 0; i < in.count; ++i) {
    const T* v = in.values[i] + token * in.hidden;
    float sums[3] = {}, value[W], scale[W], query[W], up[W];
    for (int64_t c = int64_t{threadIdx.x} * W; c < in.hidden; c += kThreads * W) {
      load<W>(v + c, value);
      load<W>(in.norm_scale + c, scale);
      load<W>(in.query + c, query);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        sums[0] += value[j] * value[j];
        sums[1] += scale[j] * query[j] * value[j];
      }
      if (dy != nullptr) {
        load<W>(dy + c, up);
#pragma unroll
        for (int j = 0; j < W; ++j) {
          sums[2] += up[j] * value[j];
        }
      }
    }
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      sums[k] = warp_sum(sums[k]);
      if (lane == 0) {
        s.sums[i][k][warp] = sums[k];
      }
    }
  }
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  if (mine < in.count) {
    float total[3] = {};
    for (int w = 0; w < kWarps; ++w) {
      for (int k = 0; k < 3; ++k) {
        total[k] += s.sums[mine][k][w];
      }
    }
    const float inverse = 1.0f / sqrtf(total[0] / static_cast<float>(in.hidden) + in.eps);
    s.inv_rms[mine] = inverse;
    s.score[mine] = inverse * total[1];
    s.dy_v[mine] = total[2];
  }
  __syncthreads();
  if (mine < in.count) {
    float largest = s.score[0], total = 0;
    for (int i = 1; i < in.count; ++i) {
      largest = fmaxf(largest, s.score[i]);
    }
    for (int i = 0; i < in.count; ++i) {
      total += expf(s.score[i] - largest);
    }
    s.p[mine] = expf(s.score[mine] - largest) / total;
  }
  __syncthreads();
}

template <class T, int W>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ Sources<T> in, T* y) {
  __shared__ Shared s;
  const int64_t token = blockIdx.x;
  weigh<W>(in, token, static_cast<const T*>(nullptr), s);
  for (int64_t c = int64_t{threadIdx.x} * W; c < in.hidden; c += kThreads * W) {
    float sum[W] = {}, v[W];
    for (int i = 0; i < in.count; ++i) {
      load<W>(in.values[i] + token * in.hidden + c, v);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        sum[j] += s.p[i] * v[j];
      }
    }
    store<W>(y + token * in.hidden + c, sum);
  }
}

// With s_i = r_i <a, v_i> and a = norm_scale * query:
//   ds_i = p_i (<dy, v_i> - <dy, y>);  dv_i += p_i dy + ds_i r_i (a - (s_i r_i / hidden) v_i);  da += ds_i r_i v_i
template <class T, int W>
__global__ void __launch_bounds__(kThreads) backward_kernel(const __grid_constant__ Sources<T> in, const __grid_constant__ Gradients out, const T* dy) {
  extern __shared__ float shared[];
  __shared__ Shared s;
  const ColumnSums<W, kThreads> da{shared, in.hidden};
  da.clear();
  const int64_t begin = int64_t{blockIdx.x} * out.share, end = min(begin + out.share, in.tokens);
  for (int64_t token = begin; token < end; ++token) {
    const T* up = dy + token * in.hidden;
    weigh<W>(in, token, up, s);
    float dy_y = 0;
    for (int i = 0; i < in.count; ++i) {
      dy_y += s.p[i] * s.dy_v[i];
    }
    for (int64_t c = int64_t{threadIdx.x} * W; c < in.hidden; c += kThreads * W) {
      float u[W], a[W], query[W], v[W], dv[W], sum[W] = {};
      load<W>(up + c, u);
      load<W>(in.norm_scale + c, a);
      load<W>(in.query + c, query);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        a[j] *= query[j];
      }
      for (int i = 0; i < in.count; ++i) {
        const float p = s.p[i], slope = p * (s.dy_v[i] - dy_y) * s.inv_rms[i];
        const float shrink = s.score[i] * s.inv_rms[i] / static_cast<float>(in.hidden);
        float* dvalue = out.dvalues[i] + token * in.hidden + c;
        load<W>(in.values[i] + token * in.hidden + c, v);
        load<W>(dvalue, dv);
#pragma unroll
        for (int j = 0; j < W; ++j) {
          dv[j] += p * u[j] + slope * (a[j] - shrink * v[j]);
          sum[j] += slope * v[j];
        }
        store<W>(dvalue, dv);
      }
#pragma unroll
      for (int j = 0; j < W; ++j) {
        da.at(c, j) += sum[j];
      }
    }
    __syncthreads();  // before the next token's weights replace these
  }
  da.write(out.partials + blockIdx.x * in.hidden);
}

template <class T>
struct Unfold {
  const float* da;
  const T *norm_scale, *query;
  float *dnorm_scale, *dquery;
  template <int W>
  __device__ void apply(int64_t i) const {
    dquery[i] += to_float(norm_scale[i]) * da[i];
    dnorm_scale[i] += to_float(query[i]) * da[i];
  }
};

template <class T>
Sources<T> sources_of(std::span<const TensorView> sources, const TensorView& norm_scale, const TensorView& query, double eps) {
  Sources<T> in{};
  in.count = static_cast<int>(sources.size());
  for (int i = 0; i < in.count; ++i) {
    in.values[i] = typed<T>(sources[static_cast<size_t>(i)]);
  }
  in.norm_scale = typed<T>(norm_scale);
  in.query = typed<T>(query);
  in.tokens = sources[0].size(0);
  in.hidden = sources[0].size(1);
  in.eps = static_cast<float>(eps);
  return in;
}

bool all_wide(std::span<const TensorView> views) {
  return std::all_of(views.begin(), views.end(), [](const TensorView& view) { return is_wide({&view}); });
}

template <class Fn>
void with_width(bool wide, Fn&& fn) {
  if (wide) {
    fn(std::integral_constant<int, kWidth>{});
  } else {
    fn(std::integral_constant<int, 1>{});
  }
}

}  // namespace

void attn_res_mix_forward(ExecContext& ctx, const AttnResMixForward& op) {
  const int64_t tokens = op.y.size(0);
  if (tokens == 0) {
    return;
  }
  dispatch_compute(op.y.dtype(), "attn_res_mix_forward", [&](auto zero) {
    using T = decltype(zero);
    const Sources<T> in = sources_of<T>(op.sources, op.norm_scale, op.query, op.eps);
    with_width(all_wide(op.sources) && is_wide({&op.norm_scale, &op.query, &op.y}), [&](auto w) {
      if (w() > 1 && in.hidden <= attn_res_mix::kWarpHidden) {
        attn_res_mix::forward_by_warps(stream_of(ctx), in, typed<T>(op.y));
      } else {
        forward_kernel<T, w()><<<static_cast<unsigned>(tokens), kThreads, 0, stream_of(ctx)>>>(in, typed<T>(op.y));
      }
    });
  });
  LH_CHECK_LAUNCH(ctx, "attn_res_mix_forward");
}

void attn_res_mix_backward(ExecContext& ctx, const AttnResMixBackward& op, const AttnResMixScratch& scratch) {
  const int64_t tokens = op.dy.size(0), hidden = op.dy.size(1), blocks = scratch.partials.size(0);
  Gradients out{};
  for (size_t i = 0; i < op.dsources.size(); ++i) {
    out.dvalues[i] = op.dsources[i].data<float>();
  }
  out.partials = scratch.partials.data<float>();
  out.share = ceil_div(tokens, blocks);
  auto* da = scratch.dfolded.data<float>();
  LH_CUDA(cudaMemsetAsync(da, 0, static_cast<size_t>(scratch.dfolded.bytes()), stream_of(ctx)));
  dispatch_compute(op.dy.dtype(), "attn_res_mix_backward", [&](auto zero) {
    using T = decltype(zero);
    const Sources<T> in = sources_of<T>(op.sources, op.norm_scale, op.query, op.eps);
    with_width(all_wide(op.sources) && all_wide(op.dsources) && is_wide({&op.norm_scale, &op.query, &op.dy}), [&](auto w) {
      if (w() > 1 && hidden <= attn_res_mix::kWarpHidden) {
        attn_res_mix::backward_by_warps(stream_of(ctx), static_cast<unsigned>(blocks), in, out, typed<T>(op.dy));
        return;
      }
      const int64_t bytes = ColumnSums<w(), kThreads>::shared_bytes(hidden);
      allow_shared(backward_kernel<T, w()>, bytes);
      backward_kernel<T, w()><<<static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(bytes), stream_of(ctx)>>>(in, out, typed<T>(op.dy));
    });
    LH_CHECK_LAUNCH(ctx, "attn_res_mix_backward");
    add_partial_sums(ctx, scratch.partials, scratch.dfolded);
    launch_singly(ctx, "attn_res_mix_backward", hidden, Unfold<T>{da, in.norm_scale, in.query, op.dnorm_scale.data<float>(), op.dquery.data<float>()});
  });
}

}  // namespace longhaul::cuda
