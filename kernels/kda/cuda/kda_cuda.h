// Kimi Delta Attention on NVIDIA GPUs, for head dimensions 64 and 128, bf16 inputs and an fp32 state; kernels/kda/kda.h
// has the definition. Plain pointers and strides, no CUDA headers: the caller owns memory, stream and layout. Each
// function enqueues its kernels and returns the CUDA error code of the launches, 0 when all is well.
//
// Deterministic, and bitwise causal: outputs at t depend on nothing after t, and a document packed with others has the
// same bits as alone.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace longhaul::kda::cuda {

struct Sizes {
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 128;  // of keys and values: 64 or 128
  int64_t documents = 1;
};

// Which products the walk along a document uses.
enum class Products : uint8_t { Warpgroup, Warp };  // wgmma (sm_90a), mma.sync (sm_80 and later)

// Bounded gates, g >= -5, let all tiles be dense products; without a bound (softplus) pairs within a tile are formed one by one.
enum class Gates : uint8_t { Bounded, Unbounded };

// q, k, v and outputs are [tokens, heads, head_dim] with heads and channels contiguous; *_stride is the number of
// elements between tokens. All pointers are to device memory.
struct InputArrays {
  const void* q = nullptr;               // bf16
  const void* k = nullptr;               // bf16
  const void* v = nullptr;               // bf16
  int64_t q_stride = 0;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  const float* g = nullptr;              // [tokens, heads, head_dim] log-decay <= 0; bounded: at least -5
  const float* beta = nullptr;           // [tokens, heads]
  int64_t g_stride = 0;                  // of g or gate
  // Instead of g and beta, and with q and k before their L2 norm:
  const void* gate = nullptr;            // bf16 [tokens, heads, head_dim] logits of the gate
  const void* beta_logits = nullptr;     // bf16 [tokens, heads]
  const float* a_log = nullptr;          // [heads]; absent: 0
  const float* dt_bias = nullptr;        // [heads, head_dim]; absent: 0
  float gate_bound = -5;                 // g = gate_bound * sigmoid(e^{a_log} (gate + dt_bias))
  const int64_t* cu_seqlens = nullptr;   // [documents + 1], ascending from 0 to tokens
  float scale = 1;                       // of q
  Gates gates = Gates::Bounded;          // unbounded ones are given as g
};

// How forward's steps follow each other: one after the other, or chunks prepared beside the walk (cuda/flow.cuh; 128 channels,
// gates with a bound). Auto: beside it when there are heads enough.
enum class Schedule : uint8_t { Auto, Steps, Flow };

struct ForwardArgs {
  Sizes sizes;
  InputArrays in;
  const float* initial_state = nullptr;  // [documents, heads, head_dim, head_dim]; absent: zero
  void* o = nullptr;                     // bf16
  int64_t o_stride = 0;
  float* final_state = nullptr;          // [documents, heads, head_dim, head_dim]; absent: not wanted
  void* saved = nullptr;                 // saved_bytes, for backward; absent: inference
  void* workspace = nullptr;             // forward_workspace_bytes, aligned to 1024 bytes
  CUstream_st* stream = nullptr;
  int64_t segment_chunks = 0;            // chunks a block walks through; 0: chosen from the number of heads and the position
  Products products = Products::Warpgroup;
  Schedule schedule = Schedule::Auto;
};

// q, k, g and beta of `in` as forward had them (raw inputs are not supported here). Gradients are [tokens, heads, head_dim]
// and [tokens, heads] without gaps, and are overwritten.
struct BackwardArgs {
  Sizes sizes;
  InputArrays in;
  const void* d_o = nullptr;             // bf16
  int64_t d_o_stride = 0;
  const float* dfinal_state = nullptr;   // [documents, heads, head_dim, head_dim]; absent: zero
  const void* saved = nullptr;           // as forward left it
  float* dq = nullptr;
  float* dk = nullptr;
  float* dv = nullptr;
  float* dg = nullptr;
  float* dbeta = nullptr;
  float* dinitial_state = nullptr;       // [documents, heads, head_dim, head_dim]; absent: not wanted
  void* workspace = nullptr;             // backward_workspace_bytes, aligned to 1024 bytes
  CUstream_st* stream = nullptr;
  int64_t segment_chunks = 0;
  Products products = Products::Warpgroup;
};

[[nodiscard]] int64_t forward_workspace_bytes(const Sizes& sizes, int64_t segment_chunks = 0);
// States entering every chunk and the residuals of the delta rule, 16 bits each, at most 4 head_dim^2 bytes a chunk and head.
[[nodiscard]] int64_t saved_bytes(const Sizes& sizes);
[[nodiscard]] int forward(const ForwardArgs& args);
[[nodiscard]] int64_t backward_workspace_bytes(const Sizes& sizes, int64_t segment_chunks = 0);
[[nodiscard]] int backward(const BackwardArgs& args);

}  // namespace longhaul::kda::cuda
