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
  float* dq;                                // [tokens, heads, K]
  float* dk;
  float* dv;                                // [tokens, heads, V]
  float* dg;
  float* dbeta;                             // [tokens, heads]
};

template <int D>
struct GradientShared {
  static constexpr int kThreads = 4 * D;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kParts = D / 32;  // of the channels, a warp each
  static constexpr int kGroups = 8;      // of the rows, where a thread has two channels
  static constexpr int kGroupRows = kChunk / kGroups;
  static constexpr int kStates = 0;                                             // 16 bits [V, K]
  static constexpr int kStateGradients = kStates + panel_bytes(D, D);           // 16 bits [V, K]
  static constexpr int kResiduals = kStateGradients + panel_bytes(D, D);        // 16 bits [64, V]
  static constexpr int kResidualGradients = kResiduals + panel_bytes(kChunk, D);  // 16 bits [64, V]
  static constexpr int kFetched = kResidualGradients + panel_bytes(kChunk, D);
  static constexpr int kOutputs = kFetched;                                     // bf16 [64, V] dO; then what is left of dA, dL
  static constexpr int kColumns = kOutputs + 2 * panel_bytes(kChunk, kChunk);   // bf16 [64, K] k 2^{-F-54}
  static constexpr int kQueries = kColumns + panel_bytes(kChunk, D);            // bf16 [64, K] scale q 2^{F+54}
  static constexpr int kKeys = kQueries + panel_bytes(kChunk, D);               // bf16 [64, K] beta k 2^{F+54}
  static constexpr int kDecayRow = 4 * D + 32;
  static constexpr int kDecays = kKeys + panel_bytes(kChunk, D);                // fp32 [64, K] 2^F
  static constexpr int kScores = kDecays + kChunk * kDecayRow;                  // bf16 [64, 64] dA, dL
  static constexpr int kLogs = kScores;                                         // fp32 [8, 2, K] before dA
  // fp32 [4, K] decay to the first row of a tile: from the chunk's start for tile 0, from that of the tile before else.
  static constexpr int kSteps = kScores + 2 * panel_bytes(kChunk, kChunk);
  static constexpr int kEnds = kSteps + kTiles * D * 4;                         // fp32 [4, K] 2^{54 + G_C - P} of tiles
  static constexpr int kSums = kEnds + kTiles * D * 4;                          // fp32 [2, 4, K] of dg, by tiles
  static constexpr int kInner = kSums;                                          // fp32 [8, K] of S dS', before
  static constexpr int kStateSum = kSums + 8 * D * 4;                           // fp32 [K]
  static constexpr int kBeta = kStateSum + D * 4;                               // fp32 [64]
  static constexpr int kDiagonal = kBeta + kChunk * 4;                          // fp32 [64] dA_ii
  static constexpr int kBetaSums = kDiagonal + kChunk * 4;                      // fp32 [1 + parts, 64]
  static constexpr int kFactors = kBetaSums + (1 + kParts) * kChunk * 4;        // fp32 [3, V], see Factors
  static constexpr int kBarrier = kFactors + 3 * D * 4 + 16;
  static constexpr int kBytes = kBarrier + 16;
  static_assert(panel_bytes(kChunk, D) <= 2 * panel_bytes(kChunk, kChunk));
  static_assert(kGroups * 2 * D * 4 <= 2 * panel_bytes(kChunk, kChunk));
};

inline constexpr float kMiddle = 54.0F;
inline constexpr float kUp = 18014398509481984.0F;  // 2^54
inline constexpr float kDown = 1.0F / kUp;

}  // namespace longhaul::kda::cuda
