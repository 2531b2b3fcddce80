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
double relative_error(const Array<T>& x, const Array<double>& reference) {
  Array<double> sums(3);
  require(cudaMemset(sums.get(), 0, 24), "sums");
  difference_kernel<<<264, 256>>>(x.get(), reference.get(), x.count(), sums.get());
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
  ReferenceParams forward;  // o and final_state are not written
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

// One block a document and head, one thread a value column. q, k, g and beta as they are.
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
      const double s = before * exp(static_cast<double>(f.in.g[row * d + c]));
      state[c * d + e] = s;
      residual -= bf16_double(f.in.k[row * d + c]) * s;
    }
    for (int c = 0; c < d; ++c) {
      state[c * d + e] += f.in.beta[row] * bf16_double(f.in.k[row * d + c]) * residual;
    }
  }
  for (int c = 0; c < d; ++c) {
    state[c * d + e] = p.dfinal[state_at + c * d + e];
  }
  for (int64_t t = end - 1; t >= begin; --t) {
    const int64_t row = t * f.heads + head;
    const double beta = f.in.beta[row];
    const double d_o = bf16_double(p.d_o[row * d + e]);
    double residual = bf16_double(f.in.v[row * d + e]);
    for (int c = 0; c < d; ++c) {
      residual -= bf16_double(f.in.k[row * d + c]) * p.states[(row * d + c) * d + e] * exp(static_cast<double>(f.in.g[row * d + c]));
    }
    double dr = 0;
    double dbeta = 0;
    for (int c = 0; c < d; ++c) {
      const double k = bf16_double(f.in.k[row * d + c]);
      const double decayed = p.states[(row * d + c) * d + e] * exp(static_cast<double>(f.in.g[row * d + c]));
      add_over_block(f.scale * (decayed + beta * k * residual) * d_o, p.dq + row * d + c);
      const double ds = state[c * d + e] + f.scale * bf16_double(f.in.q[row * d + c]) * d_o;
      state[c * d + e] = ds;
      add_over_block(beta * ds * residual, p.dk + row * d + c);
      dbeta += k * ds * residual;
      dr += beta * k * ds;
    }
    add_over_block(dbeta, p.dbeta + row);
    p.dv[row * d + e] = dr;
    for (int c = 0; c < d; ++c) {
      const double k = bf16_double(f.in.k[row * d + c]);
      const double alpha = exp(static_cast<double>(f.in.g[row * d + c]));
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
  Array<double> dq, dk, dv, dg, dbeta, dinitial;

  BackwardReference(const Problem& p, const Arriving& arriving)
      : dq(p.values()), dk(p.values()), dv(p.values()), dg(p.values()), dbeta(p.sizes.tokens * p.sizes.heads),
        dinitial(p.initial.count()) {
    const int d = static_cast<int>(p.sizes.head_dim);
    const int bytes = d * d * 8;
    Array<double> states(p.values() * d);
    for (Array<double>* x : {&dq, &dk, &dg, &dbeta}) {
      require(cudaMemset(x->get(), 0, static_cast<size_t>(x->bytes())), "cudaMemset");
    }
    require(cudaFuncSetAttribute(backward_reference_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "reference");
    const BackwardReferenceParams params{
        .forward = {.in = {p.q.get(), p.k.get(), p.v.get(), nullptr, nullptr, p.g.get(), p.beta.get(), nullptr, nullptr},
                    .cu_seqlens = p.cu_seqlens.get(),
                    .initial = p.initial.get(),
                    .heads = static_cast<int>(p.sizes.heads),
                    .dim = d,
                    .raw = false,
                    .scale = 1.0F / std::sqrt(static_cast<float>(d)),
                    .o = nullptr,
                    .final_state = nullptr},
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
    require(cudaDeviceSynchronize(), "backward_reference_kernel");
  }
};

}  // namespace
