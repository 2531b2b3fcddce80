// Cuts packed documents into chunks and segments on the device, since cu_seqlens lies there. Segments start at fixed
// positions of a document, so that rounding depends neither on what follows in the document nor on its neighbours.
#pragma once

#include "kernels/kda/cuda/layout.cuh"

namespace longhaul::kda::cuda {

inline constexpr int kTablesThreads = 1024;
inline constexpr int kSortedSegments = 2048;

// Index of the last document that starts at or before `item`.
__device__ __forceinline__ int find_document(const int32_t* first, int documents, int item) {
  int low = 0;
  int high = documents;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (first[middle] <= item) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

struct TablesParams {
  const int64_t* cu_seqlens;  // [documents + 1]
  int documents;
  SegmentRule segments;
  Tables tables;
  int heads;
  FlowTables flow;  // absent items: not wanted
};

// Lists the parts of all segments, which `order` has by length: rank r of a part's segments is rank r of the part before.
// `first`: [kFlowParts + 1] in shared memory.
inline constexpr int kFlowParts = 1024;
static __device__ void list_flow_items(const TablesParams& p, int segments, int32_t* first, int thread, int threads) {
  const Tables& tables = p.tables;
  const int longest = tables.segments[tables.order[0]].chunks;
  const int parts = max(1, (longest + kFlowChunks - 1) / kFlowChunks);
  for (int part = thread; part < parts; part += threads) {
    int low = 0;  // segments that reach into the part; all into the first
    int high = segments;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (part == 0 || tables.segments[tables.order[middle]].chunks > part * kFlowChunks) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    first[part + 1] = low * p.heads;
  }
  sync_block();
  if (thread == 0) {
    first[0] = 0;
    for (int part = 0; part < parts; ++part) {
      first[part + 1] += first[part];
    }
    *p.flow.items_end = first[parts];
  }
  sync_block();
  for (int i = thread; i < first[parts]; i += threads) {
    const int part = find_document(first, parts, i);
    const int rank = i - first[part];
    const int index = tables.order[rank / p.heads];
    const SegmentEntry segment = tables.segments[index];
    const int start = part * kFlowChunks;
    const int left = segment.chunks - start;
    p.flow.items[i] = FlowItem{segment.first_chunk + start, min(left, kFlowChunks), index, rank % p.heads, part, left <= kFlowChunks ? 1 : 0};
  }
}

// One block. A document of no tokens has no chunk but one segment, which carries its state through.
static __global__ void __launch_bounds__(kTablesThreads) tables_kernel(const TablesParams p) {
  auto* sums = reinterpret_cast<int32_t*>(dynamic_shared());  // [2, 2, threads], then lengths [kSortedSegments]
  const int t = thread_index();
  const int threads = block_threads();
  if (p.flow.items != nullptr) {
    for (int64_t i = t; i < p.flow.flag_count; i += threads) {
      p.flow.flags[i] = 0;
    }
    sync_block();
  }
  int chunks_before = 0;
  int segments_before = 0;
  for (int start = 0; start < p.documents; start += threads) {
    const int d = start + t;
    int chunks = 0;
    int segments = 0;
    if (d < p.documents) {
      chunks = static_cast<int>((p.cu_seqlens[d + 1] - p.cu_seqlens[d] + kChunk - 1) / kChunk);
      segments = static_cast<int>(p.segments.count(chunks));
    }
    int32_t* from = sums;
    int32_t* to = sums + 2 * threads;
    from[t] = chunks;
    from[threads + t] = segments;
    sync_block();
    for (int step = 1; step < threads; step *= 2) {
      to[t] = from[t] + (t >= step ? from[t - step] : 0);
      to[threads + t] = from[threads + t] + (t >= step ? from[threads + t - step] : 0);
      sync_block();
      int32_t* swap = from;
      from = to;
      to = swap;
    }
    if (d < p.documents) {
      p.tables.document_chunks[d] = chunks_before + from[t] - chunks;
      p.tables.document_segments[d] = segments_before + from[threads + t] - segments;
    }
    chunks_before += from[threads - 1];
    segments_before += from[2 * threads - 1];
    sync_block();
  }
  if (t == 0) {
    p.tables.document_chunks[p.documents] = chunks_before;
    p.tables.document_segments[p.documents] = segments_before;
  }
  sync_block();
  for (int c = t; c < chunks_before; c += threads) {
    const int d = find_document(p.tables.document_chunks, p.documents, c);
    const int64_t first = p.cu_seqlens[d] + static_cast<int64_t>(c - p.tables.document_chunks[d]) * kChunk;
    const int64_t left = p.cu_seqlens[d + 1] - first;
    p.tables.chunks[c] = ChunkEntry{first, static_cast<int32_t>(left < kChunk ? left : kChunk), d};
  }
  const bool sorted = segments_before <= kSortedSegments;
  for (int s = t; s < segments_before; s += threads) {
    const int d = find_document(p.tables.document_segments, p.documents, s);
    const int position = s - p.tables.document_segments[d];
    const int chunks = p.tables.document_chunks[d + 1] - p.tables.document_chunks[d];
    const SegmentRule::Segment segment = p.segments.segment(position);
    const int length = min(segment.chunks, chunks - segment.start);
    const int is_last = segment.start + length == chunks ? 1 : 0;
    p.tables.segments[s] = SegmentEntry{p.tables.document_chunks[d] + segment.start, length, d, position, is_last};
    if (sorted) {
      sums[s] = length;
    } else {
      p.tables.order[s] = s;
    }
  }
  if (!sorted) {
    return;
  }
  sync_block();
  for (int s = t; s < segments_before; s += threads) {
    int rank = 0;
    for (int other = 0; other < segments_before; ++other) {
      const bool before = sums[other] > sums[s] || (sums[other] == sums[s] && other < s);
      rank += before ? 1 : 0;
    }
    p.tables.order[rank] = s;
  }
  if (p.flow.items != nullptr) {
    sync_block();
    list_flow_items(p, segments_before, sums, t, threads);
  }
}

[[nodiscard]] constexpr int64_t tables_shared_bytes() { return 4 * kTablesThreads * 4; }
static_assert(4 * kTablesThreads >= kSortedSegments);

}  // namespace longhaul::kda::cuda
