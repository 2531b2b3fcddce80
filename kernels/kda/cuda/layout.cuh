// How a chunk of 64 tokens of one head lies in memory between the kernels.
//
// A panel is a matrix of 16-bit values cut into slabs of 64 columns; a slab row is 128 bytes, its eight 16-byte pieces
// permuted by the row number (the 128-byte swizzle of the copy engine and of wgmma). The same image serves in global and
// in shared memory, so that one contiguous bulk copy brings it in; matrix loads of a warp find no bank conflict, and
// wgmma reads it by rows or by columns.
#pragma once

// Host code that only needs sizes may include it too.
#if defined(__CUDACC__) || defined(LH_EMULATE_CUDA)
#include "kernels/kda/cuda/ptx.cuh"
#define LH_HOST_DEVICE __host__ __device__
#else
#include <cstdint>
#define LH_HOST_DEVICE
#endif

namespace longhaul::kda::cuda {

inline constexpr int kChunk = 64;
inline constexpr int kTile = 16;
inline constexpr int kTiles = kChunk / kTile;
inline constexpr int kSlab = 64;         // columns
inline constexpr int kSlabRowBytes = 128;

LH_HOST_DEVICE constexpr int64_t round_up_to(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }

// Byte offset of (row, column) in a panel of `rows` rows.
LH_HOST_DEVICE constexpr uint32_t panel_offset(int row, int column, int rows) {
  const int piece = ((column >> 3) & 7) ^ (row & 7);
  return static_cast<uint32_t>(((column >> 6) * rows + row) * kSlabRowBytes + piece * 16 + (column & 7) * 2);
}
LH_HOST_DEVICE constexpr int panel_bytes(int rows, int columns) { return rows * columns * 2; }

// What the recurrence reads of a chunk and head; G is the inclusive sum of g from the chunk's first row. For keys and
// queries of norm 1 all of it is at most 1, so fp16 has 3 bits more than bf16 and range enough.
template <int K>
struct ChunkImage {
  static constexpr int kKeys = 0;                                        // fp16 [64, K] k e^G
  static constexpr int kQueries = kKeys + panel_bytes(kChunk, K);        // fp16 [64, K] scale q e^G
  static constexpr int kLeaving = kQueries + panel_bytes(kChunk, K);     // fp16 [64, K] k e^{G_C - G}
  static constexpr int kSolve = kLeaving + panel_bytes(kChunk, K);       // fp16 [64, 64] (I + L)^-1 - I
  static constexpr int kScores = kSolve + panel_bytes(kChunk, kChunk);   // fp16 [64, 64] A
  static constexpr int kDecay = kScores + panel_bytes(kChunk, kChunk);   // fp32 [K] e^{G_C}
  static constexpr int kBeta = kDecay + K * 4;                           // fp32 [64] 0 beyond the chunk's rows
  static constexpr int kBytes = kBeta + kChunk * 4;
};

struct ChunkEntry {
  int64_t first_token;
  int32_t rows;  // 1 to 64
  int32_t document;
};

// A run of chunks of one document that one block walks through.
struct SegmentEntry {
  int32_t first_chunk;
  int32_t chunks;
  int32_t document;
  int32_t position;  // in the document
  int32_t is_last;   // of the document
};

// Where the segments of a document start, in chunks: eight of `first`, then four of twice that, and so on up to `largest`, so
// that a document of any length has enough of them. Positions do not depend on what follows.
struct SegmentRule {
  int32_t first;
  int32_t largest;  // first times a power of two

  struct Segment {
    int32_t start;
    int32_t chunks;
  };
  [[nodiscard]] LH_HOST_DEVICE constexpr Segment segment(int32_t index) const {
    int32_t start = 0;
    int32_t length = first;
    for (int32_t same = 8; length < largest && index >= same; same = 4) {
      start += same * length;
      index -= same;
      length *= 2;
    }
    return {start + index * length, length};
  }
  // Of a document of so many chunks; an empty one has one.
  [[nodiscard]] LH_HOST_DEVICE constexpr int64_t count(int64_t chunks) const {
    int64_t segments = 0;
    int64_t length = first;
    for (int64_t same = 8; length < largest && chunks > same * length; same = 4) {
      chunks -= same * length;
      segments += same;
      length *= 2;
    }
    segments += (chunks + length - 1) / length;
    return segments > 0 ? segments : 1;
  }
};

// A run of a segment's chunks of one head that a block walks along before it turns to another one (flow.cuh).
struct FlowItem {
  int32_t first_chunk;
  int32_t chunks;   // at most kFlowChunks
  int32_t segment;
  int32_t head;
  int32_t part;     // of the segment
  int32_t is_last;  // of the segment
};
inline constexpr int kFlowChunks = 32;
inline constexpr int kFlowDepth = 12;       // images between those who prepare and each one who walks
inline constexpr int kFlowMaxWalkers = 64;

// Device pointers into the workspace. Flags are 0 at first.
struct FlowTables {
  FlowItem* items;     // [items] parts of segments, first parts first
  int32_t* flags;      // all that follow
  int32_t* items_end;  // [1]
  int32_t* ready;      // [kFlowDepth, walkers] 1 + the time of the chunk whose image is there
  int32_t* taken;      // [walkers] times before this one need their images no more
  int32_t* carried;    // [segments, heads, 2] parts of the segment that have left their state, by warpgroups
  int64_t flag_count;
  float* state;        // [segments, heads, V, K] S^T between parts
};

// Device pointers into the workspace.
struct Tables {
  int32_t* document_chunks;    // [documents + 1] first chunk of each
  int32_t* document_segments;  // [documents + 1] first segment of each
  ChunkEntry* chunks;          // [max_chunks]
  SegmentEntry* segments;      // [max_segments]
  int32_t* order;              // [max_segments] segments, long ones first
};

}  // namespace longhaul::kda::cuda
