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

// What forward leaves for backward beside residuals: states alone, 49 KB a chunk and head with 128 channels, or also the chunks'
// decayed keys and queries, scores and inverses, 66 KB more, which backward then need not form anew.
enum class Saving : uint8_t { States, Images };

struct Sizes {
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 128;  // of keys and values: 64 or 128
  int64_t documents = 1;
  Saving saving = Saving::States;
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
  // Raw inputs, instead of g and beta, and with q and k before their L2 norm (an epsilon of 1e-6 beside the sum of squares):
  const void* gate = nullptr;            // bf16 [tokens, heads, head_dim] logits of the gate
  const void* beta_logits = nullptr;     // bf16 [tokens, heads]
  const float* a_log = nullptr;          // [heads]; absent: 0
  const float* dt_bias = nullptr;        // [heads, head_dim]; absent: 0
  float gate_bound = -5;                 // g = gate_bound * sigmoid(e^{a_log} (gate + dt_bias))
  const int64_t* cu_seqlens = nullptr;   // [documents + 1], ascending from 0 to tokens
  float scale = 1;                       // of q
  Gates gates = Gates::Bounded;          // unbounded ones are given as g
};

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
};

// Inputs as forward had them. Gradients are [tokens, heads, head_dim] and [tokens, heads] without gaps, and are overwritten: fp32,
// or with raw inputs bf16 and of what was given: q and k before their norm, logits of the gate, logits of beta.
struct BackwardArgs {
  Sizes sizes;
  InputArrays in;
  const void* d_o = nullptr;             // bf16
  int64_t d_o_stride = 0;
  const float* dfinal_state = nullptr;   // [documents, heads, head_dim, head_dim]; absent: zero
  const void* saved = nullptr;           // as forward left it
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  void* dg = nullptr;                    // or of the logits of the gate
  void* dbeta = nullptr;                 // or of its logits
  float* da_log = nullptr;               // [heads], with raw inputs; absent: not wanted
  float* ddt_bias = nullptr;             // [heads, head_dim], with raw inputs; absent: not wanted
  float* dinitial_state = nullptr;       // [documents, heads, head_dim, head_dim]; absent: not wanted
  void* workspace = nullptr;             // backward_workspace_bytes, aligned to 1024 bytes
  CUstream_st* stream = nullptr;
  int64_t segment_chunks = 0;
  Products products = Products::Warpgroup;
};

[[nodiscard]] int64_t forward_workspace_bytes(const Sizes& sizes, int64_t segment_chunks = 0);
// States entering every chunk and the residuals of the delta rule in fp16 with their units: 2 head_dim^2 + 132 head_dim bytes a
// chunk and head.
[[nodiscard]] int64_t saved_bytes(const Sizes& sizes);
// With Saving::Images `saved` must be given.
[[nodiscard]] int forward(const ForwardArgs& args);
[[nodiscard]] int64_t backward_workspace_bytes(const Sizes& sizes, int64_t segment_chunks = 0);
[[nodiscard]] int backward(const BackwardArgs& args);

}  // namespace longhaul::kda::cuda
