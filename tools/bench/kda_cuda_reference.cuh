// The recurrence token by token in double, forward and backward, and the distance from it, for kda_cuda_bench.cu.
#pragma once

#include "tools/bench/kda_cuda_inputs.cuh"

namespace {

struct ReferenceParams {
  Inputs in;
  const int64_t* cu_seqlens;
  const float* initial;
  int heads;
  int dim;
  bool raw;
  double scale;
  double* o;
  double* final_state;
};

__device__ double bf16_double(uint16_t x) { return kda::bf16_low(x); }

// One block a document and head, one thread a value column.
__global__ void reference_kernel(ReferenceParams p) {
  extern __shared__ __align__(16) double memory[];
  const int d = p.dim;
  double* state = memory;          // [d, d]
  double* q = state + d * d;       // [d]
  double* k = q + d;
  double* alpha = k + d;
  double* work = alpha + d;        // [2, d]
  const int e = static_cast<int>(threadIdx.x);
  const int document = static_cast<int>(blockIdx.x) / p.heads;
  const int head = static_cast<int>(blockIdx.x) % p.heads;
  const int64_t state_at = static_cast<int64_t>(blockIdx.x) * d * d;
  for (int c = 0; c < d; ++c) {
    state[c * d + e] = p.initial[state_at + c * d + e];
  }
  for (int64_t t = p.cu_seqlens[document]; t < p.cu_seqlens[document + 1]; ++t) {
    const int64_t row = t * p.heads + head;
    const int64_t at = row * d + e;
    q[e] = bf16_double(p.in.q[at]);
    k[e] = bf16_double(p.in.k[at]);
    double g = p.in.g[at];
    double beta = p.in.beta[row];
    if (p.raw) {
      work[e] = q[e] * q[e];
      work[d + e] = k[e] * k[e];
      __syncthreads();
      double squares[2] = {1e-6, 1e-6};
      for (int c = 0; c < d; ++c) {
        squares[0] += work[c];
        squares[1] += work[d + c];
      }
      q[e] /= sqrt(squares[0]);
      k[e] /= sqrt(squares[1]);
      g = -5.0 * sigmoid(exp(static_cast<double>(p.in.a_log[head])) * (bf16_double(p.in.gate[at]) + p.in.dt_bias[head * d + e]));
      beta = sigmoid(bf16_double(p.in.beta_logits[row]));
    }
    alpha[e] = exp(g);
    __syncthreads();
    double residual = bf16_double(p.in.v[at]);
    for (int c = 0; c < d; ++c) {
      const double s = state[c * d + e] * alpha[c];
      state[c * d + e] = s;
      residual -= k[c] * s;
    }
    double o = 0;
    for (int c = 0; c < d; ++c) {
      const double s = state[c * d + e] + beta * k[c] * residual;
      state[c * d + e] = s;
      o += p.scale * q[c] * s;
    }
    p.o[at] = o;
    __syncthreads();
  }
  for (int c = 0; c < d; ++c) {
    p.final_state[state_at + c * d + e] = state[c * d + e];
  }
}

__device__ double as_double(uint16_t x) { return bf16_double(x); }
__device__ double as_double(float x) { return x; }

// sums[0] += |x - reference|^2, sums[1] += |reference|^2, sums[2] += number of NaN.
template <class T>
__global__ void difference_kernel(const T* x, const double* reference, int64_t count, double* sums) {
  double difference = 0;
  double size = 0;
  double nans = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const double a = as_double(x[i]);
    nans += isnan(a) ? 1 : 0;
    difference += isnan(a) ? 0 : (a - reference[i]) * (a - reference[i]);
    size += reference[i] * reference[i];
  }
  atomicAdd(sums, difference);
  atomicAdd(sums + 1, size);
  atomicAdd(sums + 2, nans);
}

template <class T>
double relative_error(const T* x, const Array<double>& reference) {
  Array<double> sums(3);
  require(cudaMemset(sums.get(), 0, 24), "sums");
  difference_kernel<<<264, 256>>>(x, reference.get(), reference.count(), sums.get());
  const std::vector<double> s = sums.host();
  return s[2] > 0 ? INFINITY : std::sqrt(s[0] / s[1]);
}

struct Reference {
  Array<double> o;
  Array<double> final_state;

  explicit Reference(const Problem& p) : o(p.values()), final_state(p.initial.count()) {
    const int d = static_cast<int>(p.sizes.head_dim);
    const int bytes = (d * d + 5 * d) * 8;
    require(cudaFuncSetAttribute(reference_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "reference");
    const ReferenceParams params{
        .in = {p.q.get(), p.k.get(), p.v.get(), p.gate.get(), p.beta_logits.get(), p.g.get(), p.beta.get(), p.a_log.get(), p.dt_bias.get()},
        .cu_seqlens = p.cu_seqlens.get(),
        .initial = p.initial.get(),
        .heads = static_cast<int>(p.sizes.heads),
        .dim = d,
        .raw = p.kind == Kind::Raw,
        .scale = 1.0 / std::sqrt(static_cast<double>(d)),
        .o = o.get(),
        .final_state = final_state.get()};
    reference_kernel<<<static_cast<unsigned>(p.sizes.documents * p.sizes.heads), static_cast<unsigned>(d), static_cast<size_t>(bytes)>>>(params);
    require(cudaDeviceSynchronize(), "reference_kernel");
  }
};

struct BackwardReferenceParams {
  ReferenceParams forward;  // of its inputs v alone; o and final_state are not written
  const double *q, *k, *g, *beta;  // normalised q and k
  const uint16_t* d_o;
  const float* dfinal;
  double* states;  // [tokens, heads, d, d] before each token
  double *dq, *dk, *dv, *dg, *dbeta, *dinitial;
};

// Adds x over the block to *to; the others meet it at the next barrier.
__device__ void add_over_block(double x, double* to) {
  for (int mask = 16; mask > 0; mask /= 2) {
    x += __shfl_xor_sync(0xffffffffU, x, mask);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(to, x);
  }
}

// What the recurrence takes, from inputs of either kind. One block a token and head, one thread a channel.
__global__ void ready_kernel(Inputs in, bool raw, int heads, double* q, double* k, double* g, double* beta) {
  __shared__ double squares[2];
  const int64_t row = blockIdx.x;
  const int d = static_cast<int>(blockDim.x);
  const int64_t at = row * d + threadIdx.x;
  const double x = bf16_double(in.q[at]);
  const double y = bf16_double(in.k[at]);
  if (threadIdx.x == 0) {
    squares[0] = 1e-6;
    squares[1] = 1e-6;
  }
  __syncthreads();
  add_over_block(x * x, squares);
  add_over_block(y * y, squares + 1);
  __syncthreads();
  q[at] = raw ? x / sqrt(squares[0]) : x;
  k[at] = raw ? y / sqrt(squares[1]) : y;
  const int head = static_cast<int>(row % heads);
  g[at] = in.g[at];
  if (raw) {
    const double logit = bf16_double(in.gate[at]) + in.dt_bias[head * d + threadIdx.x];
    g[at] = -5.0 * sigmoid(exp(static_cast<double>(in.a_log[head])) * logit);
  }
  if (threadIdx.x == 0) {
    beta[row] = raw ? sigmoid(bf16_double(in.beta_logits[row])) : in.beta[row];
  }
}

// From gradients of these to those of raw inputs, in place. One block a token and head, one thread a channel.
__global__ void raw_gradients_kernel(BackwardReferenceParams p, Inputs in, double* da_log, double* ddt_bias) {
  __shared__ double sums[4];  // |q|^2, |k|^2, <q, dq>, <k, dk>
  const int64_t row = blockIdx.x;
  const int d = static_cast<int>(blockDim.x);
  const int64_t at = row * d + threadIdx.x;
  if (threadIdx.x < 4) {
    sums[threadIdx.x] = threadIdx.x < 2 ? 1e-6 : 0.0;
  }
  __syncthreads();
  const double x = bf16_double(in.q[at]);
  const double y = bf16_double(in.k[at]);
  add_over_block(x * x, sums);
  add_over_block(y * y, sums + 1);
  add_over_block(p.q[at] * p.dq[at], sums + 2);
  add_over_block(p.k[at] * p.dk[at], sums + 3);
  __syncthreads();
  p.dq[at] = (p.dq[at] - p.q[at] * sums[2]) / sqrt(sums[0]);
  p.dk[at] = (p.dk[at] - p.k[at] * sums[3]) / sqrt(sums[1]);
  const int head = static_cast<int>(row % p.forward.heads);
  const double slope = exp(static_cast<double>(in.a_log[head]));
  const double logit = bf16_double(in.gate[at]) + in.dt_bias[head * d + threadIdx.x];
  const double open = sigmoid(slope * logit);
  p.dg[at] *= -5.0 * open * (1.0 - open) * slope;
  atomicAdd(ddt_bias + head * d + threadIdx.x, p.dg[at]);
  add_over_block(p.dg[at] * logit, da_log + head);
  if (threadIdx.x == 0) {
    p.dbeta[row] *= p.beta[row] * (1.0 - p.beta[row]);
  }
}

// One block a document and head, one thread a value column.
__global__ void backward_reference_kernel(BackwardReferenceParams p) {
  const ReferenceParams& f = p.forward;
  const int d = f.dim;
  const int e = static_cast<int>(threadIdx.x);
  const int document = static_cast<int>(blockIdx.x) / f.heads;
  const int head = static_cast<int>(blockIdx.x) % f.heads;
  const int64_t state_at = static_cast<int64_t>(blockIdx.x) * d * d;
  const int64_t begin = f.cu_seqlens[document];
  const int64_t end = f.cu_seqlens[document + 1];
  extern __shared__ __align__(16) double memory[];
  double* state = memory;  // [d, d]; then its gradient
  for (int c = 0; c < d; ++c) {
    state[c * d + e] = f.initial[state_at + c * d + e];
  }
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t * f.heads + head;
    double residual = bf16_double(f.in.v[row * d + e]);
    for (int c = 0; c < d; ++c) {
      const double before = state[c * d + e];
      p.states[(row * d + c) * d + e] = before;
      const double s = before * exp(p.g[row * d + c]);
      state[c * d + e] = s;
      residual -= p.k[row * d + c] * s;
    }
    for (int c = 0; c < d; ++c) {
      state[c * d + e] += p.beta[row] * p.k[row * d + c] * residual;
    }
  }
  for (int c = 0; c < d; ++c) {
    state[c * d + e] = p.dfinal[state_at + c * d + e];
  }
  for (int64_t t = end - 1; t >= begin; --t) {
    const int64_t row = t * f.heads + head;
    const double beta = p.beta[row];
    const double d_o = bf16_double(p.d_o[row * d + e]);
    double residual = bf16_double(f.in.v[row * d + e]);
    for (int c = 0; c < d; ++c) {
      residual -= p.k[row * d + c] * p.states[(row * d + c) * d + e] * exp(p.g[row * d + c]);
    }
    double dr = 0;
    double dbeta = 0;
    for (int c = 0; c < d; ++c) {
      const double k = p.k[row * d + c];
      const double decayed = p.states[(row * d + c) * d + e] * exp(p.g[row * d + c]);
      add_over_block(f.scale * (decayed + beta * k * residual) * d_o, p.dq + row * d + c);
      const double ds = state[c * d + e] + f.scale * p.q[row * d + c] * d_o;
      state[c * d + e] = ds;
      add_over_block(beta * ds * residual, p.dk + row * d + c);
      dbeta += k * ds * residual;
      dr += beta * k * ds;
    }
    add_over_block(dbeta, p.dbeta + row);
    p.dv[row * d + e] = dr;
    for (int c = 0; c < d; ++c) {
      const double k = p.k[row * d + c];
      const double alpha = exp(p.g[row * d + c]);
      const double before = p.states[(row * d + c) * d + e];
      const double ds = state[c * d + e] - k * dr;
      add_over_block(-alpha * before * dr, p.dk + row * d + c);
      add_over_block(ds * alpha * before, p.dg + row * d + c);
      state[c * d + e] = ds * alpha;
    }
  }
  for (int c = 0; c < d; ++c) {
    p.dinitial[state_at + c * d + e] = state[c * d + e];
  }
}

// Gradients arriving: bf16 [tokens, heads, d], and fp32 [documents, heads, d, d].
struct Arriving {
  Array<uint16_t> d_o;
  Array<float> dfinal;

  explicit Arriving(const Problem& p, float scale = 1) : d_o(p.values()), dfinal(p.initial.count()) {
    Array<float> values(p.values());
    const auto fill = [](Array<float>& x, uint64_t seed, float size) {
      fill_normal_kernel<<<static_cast<unsigned>((x.count() + 255) / 256), 256>>>(x.get(), x.count(), seed, size);
    };
    fill(values, 41, scale);
    fill(dfinal, 42, 0.3F * scale);
    round_kernel<<<static_cast<unsigned>((d_o.count() + 255) / 256), 256>>>(values.get(), d_o.get(), d_o.count());
    require(cudaDeviceSynchronize(), "arriving gradients");
  }
};

struct BackwardReference {
  Array<double> dq, dk, dv, dg, dbeta, dinitial, da_log, ddt_bias;  // of raw inputs where they are raw

  BackwardReference(const Problem& p, const Arriving& arriving)
      : dq(p.values()), dk(p.values()), dv(p.values()), dg(p.values()), dbeta(p.sizes.tokens * p.sizes.heads),
        dinitial(p.initial.count()), da_log(p.sizes.heads), ddt_bias(p.stride()) {
    const int d = static_cast<int>(p.sizes.head_dim);
    const int bytes = d * d * 8;
    const bool raw = p.kind == Kind::Raw;
    const auto rows = static_cast<unsigned>(p.sizes.tokens * p.sizes.heads);
    const Inputs in{p.q.get(), p.k.get(), p.v.get(), p.gate.get(), p.beta_logits.get(), p.g.get(), p.beta.get(), p.a_log.get(), p.dt_bias.get()};
    Array<double> states(p.values() * d);
    Array<double> q(p.values()), k(p.values()), g(p.values()), beta(p.sizes.tokens * p.sizes.heads);
    ready_kernel<<<rows, static_cast<unsigned>(d)>>>(in, raw, static_cast<int>(p.sizes.heads), q.get(), k.get(), g.get(), beta.get());
    for (Array<double>* x : {&dq, &dk, &dg, &dbeta, &da_log, &ddt_bias}) {
      require(cudaMemset(x->get(), 0, static_cast<size_t>(x->bytes())), "cudaMemset");
    }
    require(cudaFuncSetAttribute(backward_reference_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "reference");
    const BackwardReferenceParams params{
        .forward = {.in = in,
                    .cu_seqlens = p.cu_seqlens.get(),
                    .initial = p.initial.get(),
                    .heads = static_cast<int>(p.sizes.heads),
                    .dim = d,
                    .raw = false,
                    .scale = 1.0F / std::sqrt(static_cast<float>(d)),
                    .o = nullptr,
                    .final_state = nullptr},
        .q = q.get(),
        .k = k.get(),
        .g = g.get(),
        .beta = beta.get(),
        .d_o = arriving.d_o.get(),
        .dfinal = arriving.dfinal.get(),
        .states = states.get(),
        .dq = dq.get(),
        .dk = dk.get(),
        .dv = dv.get(),
        .dg = dg.get(),
        .dbeta = dbeta.get(),
        .dinitial = dinitial.get()};
    backward_reference_kernel<<<static_cast<unsigned>(p.sizes.documents * p.sizes.heads), static_cast<unsigned>(d), static_cast<size_t>(bytes)>>>(params);
    if (raw) {
      raw_gradients_kernel<<<rows, static_cast<unsigned>(d)>>>(params, in, da_log.get(), ddt_bias.get());
    }
    require(cudaDeviceSynchronize(), "backward_reference_kernel");
  }
};

}  // namespace
