// What the kernel that prepares chunks (prepare.cuh) reads and writes, where things lie in its shared memory, and which part of
// a chunk a warp owns: the 16 rows of a tile and the 64 channels of a slab. That part of a panel is 2048 contiguous bytes; the
// warp fetches inputs into it, replaces them by results and sends these off, without any other warp.
#pragma once

#include "kernels/kda/cuda/products.cuh"
#include "kernels/kda/cuda/tile_share.cuh"

namespace longhaul::kda::cuda {

struct PrepareParams {
  InputParams in;
  Tables tables;
  int documents;
  unsigned char* images;  // [chunks, heads] ChunkImage
  bool backwards;         // the first chunks last: who walks from there still finds them in the second-level cache
};

template <int K>
struct PrepareShared {
  static constexpr int kSlabs = K / kSlab;
  static constexpr int kWarps = kTiles * kSlabs;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kPiece = kTile * kSlabRowBytes;  // a warp's part of a panel
  static constexpr int kPanel = panel_bytes(kChunk, K);
  static constexpr int kSquare = panel_bytes(kChunk, kChunk);
  // Panels [64, K]: the inputs, then fp16 with decays inside their tile (k 2^C, q 2^C, k 2^{C_15 - C}), then as in ChunkImage.
  static constexpr int kKeys = 0;
  static constexpr int kQueries = kKeys + kPanel;
  static constexpr int kLeaving = kQueries + kPanel;  // before: fp32 g, channels 0 to 31 of the slab
  static constexpr int kGates = kLeaving + kPanel;    // bf16 gates, or fp32 g, channels 32 to 63 of the slab
  // Panels [64, 64].
  static constexpr int kSolve = kGates + kPanel;      // fp16 (I + L)^-1 - I; tiles above the diagonal stay zero
  static constexpr int kScores = kSolve + kSquare;    // fp16 A; likewise
  static constexpr int kLower = kScores + kSquare;    // fp16 L, tiles below the diagonal
  static constexpr int kInverse = kLower + kSquare;   // fp16 (I + L)^-1
  static constexpr int kPartial = kInverse;           // before it: fp32 [4, 4, 32, 4] half sums of the diagonal tiles
  static constexpr int kDiagonalRow = 20;             // padded against bank conflicts
  static constexpr int kDiagonalTile = kTile * kDiagonalRow + 4;
  static constexpr int kDiagonal = kInverse + kSquare;                      // fp32 diagonal tiles of L
  static constexpr int kTotals = kDiagonal + kTiles * kDiagonalTile * 4;    // fp32 [4, K] decay of each tile
  static constexpr int kBias = kTotals + kTiles * K * 4;                    // fp32 [warps, 64] of the gates; raw inputs
  static constexpr int kStarts = kBias + kWarps * kSlab * 4;                // fp16 [4, K] decay from the chunk's start to a tile
  static constexpr int kScaled = kStarts + kTiles * K * 2;                  // fp16 [4, K] that times scale
  static constexpr int kEnds = kScaled + kTiles * K * 2;                    // fp16 [4, K] decay from a tile to the chunk's end
  static constexpr int kBetween = kEnds + kTiles * K * 2;                   // fp16 [3, K] decay of tile 1, of tile 2, of both
  static constexpr int kSquares = kBetween + (kTiles - 1) * K * 2;          // fp32 [slabs, 2, 64] sums of squares; raw inputs
  static constexpr int kBeta = kSquares + kSlabs * 2 * kChunk * 4;          // fp32 [64]
  static constexpr int kTriangle = kBeta + kChunk * 4;                      // see Triangle
  static constexpr int kBytes = kTriangle + 32 * 16;
  static_assert(kScores == kSolve + kSquare && ChunkImage<K>::kScores == ChunkImage<K>::kSolve + kSquare);
};

__device__ __forceinline__ int block_row(int i, int lane) { return lane / 4 + i / 2 % 2 * 8; }
__device__ __forceinline__ int block_column(int i, int lane) { return lane % 4 * 2 + i / 4 * 8; }

__device__ __forceinline__ float2 read_float2(const unsigned char* at) { return *reinterpret_cast<const float2*>(at); }
__device__ __forceinline__ uint32_t read_pair(const unsigned char* at) { return *reinterpret_cast<const uint32_t*>(at); }
__device__ __forceinline__ void put(unsigned char* to, uint32_t pair) { *reinterpret_cast<uint32_t*>(to) = pair; }

// A warp's part. Fragments are those of 16 rows and 16 channels, four of them in a slab; register i of a fragment holds row
// g + i % 2 * 8, channels 2t + i / 2 * 8 and the next.
template <int K>
struct Part {
  int warp;
  int lane;

  explicit __device__ __forceinline__ Part(int thread) : warp(uniform(thread / 32)), lane(thread % 32) {}
  [[nodiscard]] __device__ __forceinline__ int tile() const { return warp % kTiles; }
  [[nodiscard]] __device__ __forceinline__ int slab() const { return warp / kTiles; }
  [[nodiscard]] __device__ __forceinline__ uint32_t offset() const { return static_cast<uint32_t>(warp * PrepareShared<K>::kPiece); }
  // Where the lane points ldmatrix and stmatrix for fragment b of the piece at `piece`.
  [[nodiscard]] __device__ __forceinline__ uint32_t fragment(uint32_t piece, int b) const {
    const int row = lane % 16;
    const uint32_t first = piece + static_cast<uint32_t>(row * kSlabRowBytes + ((lane / 16) ^ (row & 7)) * 16);
    return first ^ static_cast<uint32_t>(b * 32);
  }
  // The same for the transposed matrix as a right operand (load_b, RowsOfPanel).
  [[nodiscard]] __device__ __forceinline__ uint32_t right_fragment(uint32_t piece, int b) const {
    const int row = lane % 8 + lane / 16 * 8;
    const uint32_t first = piece + static_cast<uint32_t>(row * kSlabRowBytes + ((lane / 8 % 2) ^ (row & 7)) * 16);
    return first ^ static_cast<uint32_t>(b * 32);
  }
  // The lane's first channel of fragment b, in the head.
  [[nodiscard]] __device__ __forceinline__ int channel(int b) const { return slab() * kSlab + b * 16 + lane % 4 * 2; }
};

inline constexpr int kFragments = kSlab / 16;

}  // namespace longhaul::kda::cuda
