// What the kernel of the gradients (gradients.cuh) reads and writes, and where things lie in its shared memory.
#pragma once

#include "kernels/kda/cuda/products.cuh"
#include "kernels/kda/cuda/tile_share.cuh"
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
  static constexpr int kSums = kOutputs;                                        // fp32 [8, K] of dg, by groups, at the end
  static constexpr int kLeavingSums = kSums + kGroups * D * 4;                  // fp32 [4, K] of k out, by tiles, at the end
  // Operands of tile products, 16 bits (TileFormat). With raw inputs the second and third hold dq and dk (bf16) at the end.
  static constexpr int kColumns = kOutputs + panel_bytes(kChunk, D);            // [64, K] k 2^{-F-m}
  static constexpr int kQueries = kColumns + panel_bytes(kChunk, D);            // [64, K] scale q 2^{F+m}
  static constexpr int kKeys = kQueries + panel_bytes(kChunk, D);               // [64, K] beta k 2^{F+m}
  static constexpr int kDecayRow = 4 * D + 32;
  static constexpr int kDecays = kKeys + panel_bytes(kChunk, D);                // fp32 [64, K] 2^F, then what dg sums from each row on
  static constexpr int kScores = kDecays + kChunk * kDecayRow;                  // 16 bits [64, 64] dA, dL
  static constexpr int kLogs = kScores;                                         // fp32 [8, 2, K] before dA
  // fp32 [4, K] decay to the first row of a tile: from the chunk's start for tile 0, from that of the tile before else.
  static constexpr int kSteps = kScores + 2 * panel_bytes(kChunk, kChunk);
  static constexpr int kEnds = kSteps + kTiles * D * 4;                         // fp32 [4, K] 2^{m + G_C - P} of tiles
  static constexpr int kBiasSums = kSteps;                                      // fp32 [8, K] at the end, with raw inputs
  static constexpr int kInner = kEnds + kTiles * D * 4;                         // fp32 [2, K] of S dS'
  static constexpr int kStateSum = kInner + kGroups * D * 4;                    // fp32 [K]
  static constexpr int kBeta = kStateSum + D * 4;                               // fp32 [64]
  static constexpr int kDiagonal = kBeta + kChunk * 4;                          // fp32 [64] dA_ii
  static constexpr int kBetaSums = kDiagonal + kChunk * 4;                      // fp32 [1 + parts, 64]
  static constexpr int kFactors = kBetaSums + (1 + kParts) * kChunk * 4;        // fp32 [2, V] and [V / 32], see Factors
  static constexpr int kLargest = kFactors + 2 * D * 4 + 16;                    // fp32 [warps] of dA, dL
  static constexpr int kSlopeSums = kLargest;                                   // fp32 [warps] at the end, with raw inputs
  static constexpr int kStrong = kLargest + kWarps * 4;                         // int32 [2] of this chunk and the next, see TileFormat
  static constexpr int kBarrier = kStrong + 8;
  // With raw inputs:
  static constexpr int kNorms = kBarrier + 8;                                   // fp32 [2, 64] 1 / norm of q, k
  static constexpr int kDots = kNorms + 2 * kChunk * 4;                         // fp32 [2, parts, 64] <q, dq>, <k, dk>
  static constexpr int kSquares = kDots;                                        // fp32 [D / 64, 2, 64] before
  static constexpr int kBytes = kDots + 2 * kParts * kChunk * 4;
  static_assert(kLeavingSums + kTiles * D * 4 <= kColumns);
  static_assert(kGroups * 2 * D * 4 <= 2 * panel_bytes(kChunk, kChunk) && kGroups == 2 * kTiles);
};

// Format of a chunk's tile products. Operands are 2^{F+m} and 2^{-F-m}: fp16 holds them while no channel decays by more than
// 2^-16 over a tile, and is eight times as exact, which sums over nearly parallel keys need; bf16 holds them always.
template <Format kFormat>
struct TileFormat {
  static constexpr float kMiddle = kFormat == Format::F16 ? 8.0F : 54.0F;  // m
  static constexpr float kUp = kFormat == Format::F16 ? 256.0F : 18014398509481984.0F;
  static constexpr float kDown = 1.0F / kUp;
};
inline constexpr float kStrongGroup = -8.0F;  // log2 of the decay over the eight rows of a group, beyond which a chunk is in bf16

}  // namespace longhaul::kda::cuda
