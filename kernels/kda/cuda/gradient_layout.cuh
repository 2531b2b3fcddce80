// What the kernel of the gradients (gradients.cuh) reads and writes, and where things lie in its shared memory.
#pragma once

#include "kernels/kda/cuda/inputs.cuh"
#include "kernels/kda/cuda/products.cuh"
#include "kernels/kda/cuda/walk_stages.cuh"

namespace longhaul::kda::cuda {

struct GradientParams {
  InputParams in;
  Tables tables;
  int documents;
  const uint16_t* v;                        // bf16 [tokens, heads, V]
  int64_t v_stride;                         // elements between tokens
  const uint16_t* d_o;                      // bf16 [tokens, heads, V]
  int64_t d_o_stride;
  const unsigned char* states;              // panels [V, K] of S^T, [chunks, heads] (walk_stages.cuh)
  const unsigned char* residuals;           // panels [64, V] of Vt
  const float* factors;                     // [V] of both
  const unsigned char* state_gradients;     // panels [V, K] of dS'^T
  const unsigned char* residual_gradients;  // panels [64, V] of dR
  const float* gradient_factors;            // [V] of both
  // fp32, or bf16 and of the raw inputs:
  void* dq;                                 // [tokens, heads, K]
  void* dk;
  void* dv;                                 // [tokens, heads, V]
  void* dg;
  void* dbeta;                              // [tokens, heads]
  float* bias_gradients;                    // [chunks, heads, K] with raw inputs
  float* slope_gradients;                   // [chunks, heads] with raw inputs
};

template <int D>
struct GradientShared {
  static constexpr int kThreads = 4 * D;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kParts = D / 32;  // of the channels, a warp each
  static constexpr int kGroups = 8;      // of the rows, where a thread has two channels
  static constexpr int kGroupRows = kChunk / kGroups;
  static constexpr int kStates = 0;                                             // fp16 [V, K]
  static constexpr int kStateGradients = kStates + panel_bytes(D, D);           // fp16 [V, K]
  static constexpr int kResiduals = kStateGradients + panel_bytes(D, D);        // fp16 [64, V]
  static constexpr int kResidualGradients = kResiduals + panel_bytes(kChunk, D);  // fp16 [64, V]
  static constexpr int kOutputs = kResidualGradients + panel_bytes(kChunk, D);  // bf16 [64, V] dO, then fp16 in the unit
  // Operands of tile products, bf16; of columns what their rounding left too, in kColumnRest. With raw inputs the second and third
  // hold dq and dk (bf16) at the end.
  static constexpr int kColumns = kOutputs + panel_bytes(kChunk, D);            // [64, K] k 2^{-F-54}
  static constexpr int kQueries = kColumns + panel_bytes(kChunk, D);            // [64, K] scale q 2^{F+54}
  static constexpr int kKeys = kQueries + panel_bytes(kChunk, D);               // [64, K] beta k 2^{F+54}
  static constexpr int kColumnRest = kResiduals;                                // [64, K] after the products with the states
  static constexpr int kDecayRow = 4 * D + 32;
  static constexpr int kDecays = kKeys + panel_bytes(kChunk, D);                // fp32 [64, K] 2^F, then what dg sums from each row on
  static constexpr int kScores = kDecays + kChunk * kDecayRow;                  // bf16 [64, 64] dA, dL
  static constexpr int kQueryRest = kOutputs;                                   // bf16 [64, 64] what the rounding of dA left,
  static constexpr int kKeyRest = kResidualGradients;                           // and of dL
  static constexpr int kLogs = kScores;                                         // fp32 [8, 2, K] before dA
  // fp32 [4, K] decay to the first row of a tile: from the chunk's start for tile 0, from that of the tile before else.
  static constexpr int kSteps = kScores + 2 * panel_bytes(kChunk, kChunk);
  static constexpr int kEnds = kSteps + kTiles * D * 4;                         // fp32 [4, K] 2^{54 + G_C - P} of tiles
  static constexpr int kBiasSums = kSteps;                                      // fp32 [8, K] at the end, with raw inputs
  static constexpr int kInner = kEnds + kTiles * D * 4;                         // fp32 [2, K] of S dS'
  static constexpr int kSums = kInner + 2 * D * 4;                              // fp32 [8, K] of dg, by groups
  static constexpr int kLeavingSums = kSums + kGroups * D * 4;                  // fp32 [4, K] of k out, by tiles
  static constexpr int kStateSum = kLeavingSums + kTiles * D * 4;               // fp32 [K]
  static constexpr int kBeta = kStateSum + D * 4;                               // fp32 [64]
  static constexpr int kDiagonal = kBeta + kChunk * 4;                          // fp32 [64] dA_ii
  static constexpr int kBetaSums = kDiagonal + kChunk * 4;                      // fp32 [1 + parts, 64]
  static constexpr int kFactors = kBetaSums + (1 + kParts) * kChunk * 4;        // fp32 [2, V] and [V / 32], see Factors
  static constexpr int kSlopeSums = kFactors + 2 * D * 4 + 16;                  // fp32 [warps] with raw inputs
  static constexpr int kBarrier = kSlopeSums + kWarps * 4;
  // With raw inputs:
  static constexpr int kNorms = kBarrier + 16;                                  // fp32 [2, 64] 1 / norm of q, k
  static constexpr int kDots = kNorms + 2 * kChunk * 4;                         // fp32 [2, parts, 64] <q, dq>, <k, dk>
  static constexpr int kSquares = kDots;                                        // fp32 [D / 64, 2, 64] before
  static constexpr int kBytes = kDots + 2 * kParts * kChunk * 4;
  static_assert(kGroups * 2 * D * 4 <= 2 * panel_bytes(kChunk, kChunk) && kGroups == 2 * kTiles);
  static_assert(panel_bytes(kChunk, kChunk) <= panel_bytes(kChunk, D) && kBytes <= 227 * 1024);
};

inline constexpr float kMiddle = 54.0F;
inline constexpr float kUp = 18014398509481984.0F;  // 2^54
inline constexpr float kDown = 1.0F / kUp;

}  // namespace longhaul::kda::cuda
