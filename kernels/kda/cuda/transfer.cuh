// How states pass between the segments of a document: S_out = M S_in + S_ext for each segment, with S_ext and M from the
// walk (recurrence.cuh, Walk::Transfer), folded in order (Kimi K3, context parallelism, eq. 17).
//
// Where all channels of a head decay by more than 2^-100 over the last chunks of a segment, nothing that came before them
// reaches the next segment in fp32: keys have norm 1 and beta is at most 1, so that the delta rule only shrinks a state.
// Then S_ext is walked from there, M is zero and not formed. Strong gates make this the usual case, and the segments cost
// next to nothing. The choice depends on the segment alone.
//
// Gradients of states pass the other way, dS_in = M^T dS_out + dS_ext, by the same kernels: what is handed on is then a
// segment's first chunk's, to the segment before.
#pragma once

#include "kernels/kda/cuda/layout.cuh"

namespace longhaul::kda::cuda {

enum class Direction : uint8_t { Forward, Backward };

struct ReachParams {
  Tables tables;
  int documents;
  int heads;
  const unsigned char* images;
  int32_t* reach;  // [segments, heads] chunks that the walk may leave out, as they do not reach its end; 0: none
};

inline constexpr int kReachThreads = 128;

// One warp a segment and head.
template <int K, Direction kDirection>
__global__ void __launch_bounds__(kReachThreads) reach_kernel(const ReachParams p) {
  constexpr int channels = K / 32;
  constexpr int batch = 8;
  constexpr float forgotten = 7.8886e-31F;  // 2^-100
  const int64_t item = static_cast<int64_t>(block_index()) * (kReachThreads / 32) + thread_index() / 32;
  const int lane = thread_index() % 32;
  const int segment_index = static_cast<int>(item / p.heads);
  const int head = static_cast<int>(item % p.heads);
  if (segment_index >= p.tables.document_segments[p.documents]) {
    return;
  }
  const SegmentEntry segment = p.tables.segments[segment_index];
  float left[channels];
#pragma unroll
  for (int c = 0; c < channels; ++c) {
    left[c] = 1.0F;
  }
  constexpr bool forward = kDirection == Direction::Forward;
  const bool hands_on = forward ? segment.is_last == 0 : segment.position > 0;
  int reach = hands_on ? segment.chunks : 0;
  bool remembers = true;
  while (reach > 0 && remembers) {
    float decay[batch][channels];
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const int step = max(reach - 1 - b, 0);
      const int64_t chunk = segment.first_chunk + (forward ? step : segment.chunks - 1 - step);
      const auto* from = reinterpret_cast<const float*>(p.images + (chunk * p.heads + head) * ChunkImage<K>::kBytes +
                                                        ChunkImage<K>::kDecay);
#pragma unroll
      for (int c = 0; c < channels; ++c) {
        decay[b][c] = from[c * 32 + lane];
      }
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      if (reach > 0 && remembers) {
        --reach;
        float largest = 0.0F;
#pragma unroll
        for (int c = 0; c < channels; ++c) {
          left[c] *= decay[b][c];
          largest = max(largest, left[c]);
        }
        remembers = any_lane(largest >= forgotten);
      }
    }
  }
  if (lane == 0) {
    p.reach[item] = remembers ? 0 : reach;
  }
}

struct MergeParams {
  Tables tables;
  int documents;
  int heads;
  const int32_t* reach;          // [segments, heads]
  float* leaving_state;          // [segments, heads, V, K]: S_ext^T in, S^T leaving the segment out
  const float* transfer_matrix;  // [segments, heads, K, K] M^T
};

inline constexpr int kMergeRows = 16;

// One block a document, head and 16 value columns, K threads: S^T_s = S^T_{s-1} M_s^T + S_ext,s^T in fp32, in order; or
// dS^T_s = dS^T_{s+1} M_s + dS_ext,s^T from the last segment on.
template <int K, int V, Direction kDirection>
__global__ void __launch_bounds__(K) merge_kernel(const MergeParams p) {
  constexpr int parts = V / kMergeRows;
  const int part = block_index() % parts;
  const int head = block_index() / parts % p.heads;
  const int document = block_index() / parts / p.heads;
  const int first = p.tables.document_segments[document];
  const int last = p.tables.document_segments[document + 1] - 1;
  if (last - first < 2) {
    return;
  }
  auto* state = reinterpret_cast<float*>(dynamic_shared());  // [K, 16]
  const int column = thread_index();
  const auto rows_of = [&](int segment) {
    return p.leaving_state + ((static_cast<int64_t>(segment) * p.heads + head) * V + part * kMergeRows) * K + column;
  };
  constexpr bool forward = kDirection == Direction::Forward;
  const float* start = rows_of(forward ? first : last);
#pragma unroll
  for (int v = 0; v < kMergeRows; ++v) {
    state[column * kMergeRows + v] = start[v * K];
  }
  for (int step = first + 1; step < last; ++step) {
    const int segment = forward ? step : first + last - step;
    float* out = rows_of(segment);
    sync_block();
    if (p.reach[static_cast<int64_t>(segment) * p.heads + head] > 0) {
#pragma unroll
      for (int v = 0; v < kMergeRows; ++v) {
        state[column * kMergeRows + v] = out[v * K];
      }
      continue;
    }
    const float* matrix = p.transfer_matrix + (static_cast<int64_t>(segment) * p.heads + head) * K * K + column;
    float sum[kMergeRows];
#pragma unroll
    for (int v = 0; v < kMergeRows; ++v) {
      sum[v] = out[v * K];
    }
#pragma unroll 8
    for (int r = 0; r < K; ++r) {
      const float m = matrix[r * K];
#pragma unroll
      for (int v = 0; v < kMergeRows; v += 4) {
        const float4 x = *reinterpret_cast<const float4*>(state + r * kMergeRows + v);
        sum[v] += x.x * m;
        sum[v + 1] += x.y * m;
        sum[v + 2] += x.z * m;
        sum[v + 3] += x.w * m;
      }
    }
    sync_block();
#pragma unroll
    for (int v = 0; v < kMergeRows; ++v) {
      out[v * K] = sum[v];
      state[column * kMergeRows + v] = sum[v];
    }
  }
}

}  // namespace longhaul::kda::cuda
