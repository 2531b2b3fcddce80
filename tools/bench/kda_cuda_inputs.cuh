// Device memory and random inputs for kda_cuda_bench.cu, its only user.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/kda/cuda/backward.cu"  // NOLINT(bugprone-suspicious-include): its parts are timed one by one
#include "kernels/kda/cuda/forward.cu"   // NOLINT(bugprone-suspicious-include)
#include "kernels/kda/cuda/workspace.cpp"  // NOLINT(bugprone-suspicious-include)

namespace {

namespace kda = longhaul::kda::cuda;

void require(int error, const char* what) {
  if (error != 0) {
    std::printf("FAILED %s: %s\n", what, cudaGetErrorString(static_cast<cudaError_t>(error)));
    std::exit(1);
  }
}

// Device memory, poisoned with NaN patterns.
template <class T>
class Array {
 public:
  explicit Array(int64_t count) : count_(count) {
    require(cudaMalloc(&data_, static_cast<size_t>(std::max<int64_t>(bytes(), 1))), "cudaMalloc");
    poison();
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  void poison() { require(cudaMemset(data_, 0xff, static_cast<size_t>(bytes())), "cudaMemset"); }
  [[nodiscard]] T* get() const { return data_; }
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }
  [[nodiscard]] std::vector<T> host() const {
    std::vector<T> x(static_cast<size_t>(count_));
    require(cudaMemcpy(x.data(), data_, static_cast<size_t>(bytes()), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return x;
  }

 private:
  T* data_ = nullptr;
  int64_t count_;
};

__device__ uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
__device__ float uniform(uint64_t seed, uint64_t i) { return (static_cast<float>(mix(seed * 0x10001 + i) >> 40) + 0.5F) / 16777216.0F; }
__device__ float normal(uint64_t seed, uint64_t i) {
  return sqrtf(-2.0F * logf(uniform(seed, 2 * i))) * cosf(6.2831853F * uniform(seed, 2 * i + 1));
}
__device__ uint16_t to_bf16(float x) { return static_cast<uint16_t>(kda::pack_bf16(x, 0.0F)); }
__device__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

// From Softplus on gates without a bound: as softplus decay gives them, the same in [-5, 0], and channels of all kinds to -1000.
enum class Kind { Usual, Saturated, NoDecay, ParallelKeys, Raw, Softplus, UsualPairwise, Mixed };
const char* const kKindNames[] = {"usual", "saturated", "no decay", "parallel keys", "raw", "softplus", "usual pairs", "mixed"};

struct Inputs {
  uint16_t *q, *k, *v, *gate, *beta_logits;
  float *g, *beta, *a_log, *dt_bias;
};

// One block a token and head, one thread a channel.
__global__ void fill_kernel(Inputs in, Kind kind, uint64_t seed, int heads, int dim, int64_t first_row) {
  __shared__ float squares[2][128];
  const int64_t row = first_row + blockIdx.x;
  const int c = static_cast<int>(threadIdx.x);
  const auto i = static_cast<uint64_t>(row * dim + c);
  const int head = static_cast<int>(row % heads);
  float q = normal(seed + 1, i);
  float k = normal(seed + 2, i);
  if (kind == Kind::ParallelKeys) {
    k = normal(seed + 9, head * dim + c) + 0.05F * k;
  }
  squares[0][c] = q * q;
  squares[1][c] = k * k;
  __syncthreads();
  for (int half = dim / 2; half > 0; half /= 2) {
    if (c < half) {
      squares[0][c] += squares[0][c + half];
      squares[1][c] += squares[1][c + half];
    }
    __syncthreads();
  }
  if (kind != Kind::Raw) {
    q *= rsqrtf(squares[0][0]);
    k *= rsqrtf(squares[1][0]);
  }
  in.q[i] = to_bf16(q);
  in.k[i] = to_bf16(k);
  in.v[i] = to_bf16(normal(seed + 3, i));
  const float z = 1.5F * normal(seed + 4, i);
  in.gate[i] = to_bf16(z);
  float g = static_cast<float>(-5.0 * sigmoid(z - 1.0));
  if (kind == Kind::Saturated) {
    g = row / heads % 50 > 3 || c % 7 != 0 ? -5.0F : g;
  } else if (kind == Kind::NoDecay) {
    g = 0.0F;
  } else if (kind == Kind::ParallelKeys) {
    g = static_cast<float>(-0.02 * sigmoid(z));
  }
  if (kind == Kind::Softplus) {
    g = -expf(3.0F * normal(seed + 10, static_cast<uint64_t>(head)) - 1.0F) * log1pf(expf(2.0F * z));
  } else if (kind == Kind::Mixed) {
    const float of_kind[] = {0.0F, -1000.0F, 12.0F * g, z > 0.0F ? -1000.0F : -1e-3F, -1e-3F, g};
    g = row / heads % 50 == 30 ? -1000.0F : of_kind[c % 6];
  }
  in.g[i] = g;
  if (c == 0) {
    const float b = 1.5F * normal(seed + 5, static_cast<uint64_t>(row));
    in.beta_logits[row] = to_bf16(b);
    in.beta[row] = static_cast<float>(sigmoid(kind == Kind::ParallelKeys ? 5.0 + b : b));
  }
  if (row < heads) {
    in.dt_bias[row * dim + c] = 0.5F * normal(seed + 6, i);
    if (c == 0) {
      in.a_log[row] = 0.3F * normal(seed + 7, static_cast<uint64_t>(row));
    }
  }
}
__global__ void fill_normal_kernel(float* x, int64_t count, uint64_t seed, float scale) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) {
    x[i] = scale * normal(seed, static_cast<uint64_t>(i));
  }
}

__global__ void round_kernel(const float* from, uint16_t* to, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) {
    to[i] = to_bf16(from[i]);
  }
}

struct Problem {
  kda::Sizes sizes;
  Kind kind;
  std::vector<int64_t> lengths;
  Array<uint16_t> q, k, v, gate, beta_logits;
  Array<float> g, beta, a_log, dt_bias, initial;
  Array<int64_t> cu_seqlens;

  Problem(const std::vector<int64_t>& document_lengths, int64_t heads, int64_t dim, Kind problem_kind, uint64_t seed = 1)
      : sizes{.tokens = total(document_lengths), .heads = heads, .head_dim = dim,
              .documents = static_cast<int64_t>(document_lengths.size())},
        kind(problem_kind),
        lengths(document_lengths),
        q(values()), k(values()), v(values()), gate(values()), beta_logits(sizes.tokens * heads),
        g(values()), beta(sizes.tokens * heads), a_log(heads), dt_bias(heads * dim),
        initial(sizes.documents * heads * dim * dim), cu_seqlens(sizes.documents + 1) {
    const Inputs in{q.get(), k.get(), v.get(), gate.get(), beta_logits.get(), g.get(), beta.get(), a_log.get(), dt_bias.get()};
    const int64_t rows = sizes.tokens * heads;
    constexpr int64_t slice = int64_t{1} << 30;
    for (int64_t first = 0; first < rows; first += slice) {
      fill_kernel<<<static_cast<unsigned>(std::min(slice, rows - first)), static_cast<unsigned>(dim)>>>(
          in, kind, seed, static_cast<int>(heads), static_cast<int>(dim), first);
    }
    fill_normal_kernel<<<static_cast<unsigned>((initial.count() + 255) / 256), 256>>>(initial.get(), initial.count(), seed + 8, 0.3F);
    std::vector<int64_t> boundaries{0};
    for (const int64_t length : lengths) {
      boundaries.push_back(boundaries.back() + length);
    }
    require(cudaMemcpy(cu_seqlens.get(), boundaries.data(), boundaries.size() * 8, cudaMemcpyHostToDevice), "boundaries");
    require(cudaDeviceSynchronize(), "inputs");
  }
  [[nodiscard]] static int64_t total(const std::vector<int64_t>& x) {
    int64_t sum = 0;
    for (const int64_t value : x) {
      sum += value;
    }
    return sum;
  }
  [[nodiscard]] int64_t values() const { return sizes.tokens * sizes.heads * sizes.head_dim; }
  [[nodiscard]] int64_t stride() const { return sizes.heads * sizes.head_dim; }
  [[nodiscard]] kda::InputArrays arrays() const {
    const bool raw = kind == Kind::Raw;
    return {.q = q.get(),
            .k = k.get(),
            .v = v.get(),
            .q_stride = stride(),
            .k_stride = stride(),
            .v_stride = stride(),
            .g = g.get(),
            .beta = beta.get(),
            .g_stride = stride(),
            .gate = raw ? gate.get() : nullptr,
            .beta_logits = beta_logits.get(),
            .a_log = a_log.get(),
            .dt_bias = dt_bias.get(),
            .cu_seqlens = cu_seqlens.get(),
            .scale = 1.0F / std::sqrt(static_cast<float>(sizes.head_dim)),
            .gates = kind >= Kind::Softplus ? kda::Gates::Unbounded : kda::Gates::Bounded};
  }
};

}  // namespace
