// Forward in one kernel: some blocks walk along the documents (recurrence.cuh), the others prepare chunks for them
// (prepare.cuh), and images of chunks stay in the second-level cache between the two instead of passing through memory.
//
// Segments are cut into parts of kFlowChunks chunks; walker w takes items w, w + walkers, ... of all parts of all heads, first
// parts first, and leaves the state in memory for whoever takes the next part. Its time counts chunks, kFlowChunks an item. Those
// who prepare go through all times, and through all walkers at each, into kFlowDepth images a walker.
//
// Nobody waits for ever: an image waits for one that is kFlowDepth times older, a part for one that is at least `walkers` items
// older, and every wait is for something of an earlier time. For that there must be no more walkers than heads, and more images
// than teams that prepare; blocks that have not started yet hold nothing.
#pragma once

#include "kernels/kda/cuda/prepare.cuh"
#include "kernels/kda/cuda/recurrence.cuh"

namespace longhaul::kda::cuda {

struct FlowParams {
  PrepareParams prepare;
  RecurrenceParams walk;
};

template <int K>
struct FlowShared {
  static constexpr int kTeams = 2;
  static constexpr int kThreads = kTeams * PrepareShared<K>::kThreads;
  static constexpr int64_t kPrepareBytes = kTeams * PrepareTeam<K>::kSharedBytes;
  static constexpr int64_t kWalkBytes = RecurrenceShared<K, K / 64>::kBytes;
  static constexpr int64_t kBytes = kPrepareBytes > kWalkBytes ? kPrepareBytes : kWalkBytes;
  static constexpr int kFeedRegisters = 40;
  static constexpr int kIdleRegisters = 24;
  static constexpr int kComputeRegisters = 224;
};

// The order in which images are made.
template <int K>
class FlowTurns {
 public:
  static constexpr bool kPublishes = true;

  // `team` of `teams`
  __device__ __forceinline__ FlowTurns(const FlowParams& p, int team, int teams)
      : p_(p), teams_(teams), items_(*p.walk.flow.items_end), time_(team / p.walk.walkers), walker_(team % p.walk.walkers) {}

  [[nodiscard]] __device__ __forceinline__ PrepareTurn next() {
    const int walkers = p_.walk.walkers;
    const FlowTables& flow = p_.walk.flow;
    while (time_ / kFlowChunks * walkers < items_) {
      const int index = time_ / kFlowChunks * walkers + walker_;
      const int step = time_ % kFlowChunks;
      if (index < items_) {
        const FlowItem item = flow.items[index];
        if (step < item.chunks) {
          const ChunkEntry chunk = p_.prepare.tables.chunks[item.first_chunk + step];
          last_ = {static_cast<int>(chunk.first_token), chunk.rows, item.head};
          const PrepareTurn turn{last_, static_cast<int64_t>(time_ % kFlowDepth) * walkers + walker_, true, time_, walker_};
          advance();
          return turn;
        }
      }
      advance();
    }
    return {last_, 0, false, 0, 0};
  }
  // One thread.
  __device__ __forceinline__ void wait_for_image(const PrepareTurn& turn) const {
    wait_flag(p_.walk.flow.taken + turn.walker, turn.time - kFlowDepth + 1);
  }
  __device__ __forceinline__ void publish(const PrepareTurn& turn) const { store_flag(p_.walk.flow.ready + turn.image, turn.time + 1); }

 private:
  __device__ __forceinline__ void advance() {
    const int walkers = p_.walk.walkers;
    time_ += teams_ / walkers;
    walker_ += teams_ % walkers;
    if (walker_ >= walkers) {
      walker_ -= walkers;
      ++time_;
    }
  }

  const FlowParams& p_;
  int teams_;
  int items_;
  int time_;
  int walker_;
  PrepareItem last_{};
};

// The parts of a walker; `step` walks along one.
template <int K, Engine kEngine, Walk kWalk, class Step>
__device__ __forceinline__ void for_flow_items(const RecurrenceParams& p, int walker, Step&& step) {
  WalkPlace place;
  place.walker = walker;
  const int items = *p.flow.items_end;
  for (int index = walker; index < items; index += p.walkers) {
    const FlowItem item = p.flow.items[index];
    SegmentEntry segment = p.tables.segments[item.segment];
    segment.first_chunk = item.first_chunk;
    segment.chunks = item.chunks;
    place.time = index / p.walkers * kFlowChunks;
    place.part = item.part;
    place.is_last = item.is_last != 0;
    Recurrence<K, K, K / 64, kEngine, kWalk, Feeding::Flowing> walk(p, segment, item.segment, item.head, 0, 0);
    step(walk, place);
  }
}

template <int K, Inputs kInputs, Engine kEngine, Walk kWalk>
__global__ void __launch_bounds__(FlowShared<K>::kThreads, 1) flow_kernel(const FlowParams p) {
#if LH_KDA_SM90A
  using S = FlowShared<K>;
  const int thread = thread_index();
  const int walkers = p.walk.walkers;
  if (block_index() >= walkers) {
    constexpr int team_threads = PrepareShared<K>::kThreads;
    const int team = thread / team_threads;
    const int teams = (static_cast<int>(grid_blocks()) - walkers) * S::kTeams;
    prepare_chunks<K, kInputs>(p.prepare, FlowTurns<K>(p, (block_index() - walkers) * S::kTeams + team, teams), PrepareTeam<K>{team},
                               thread % team_threads);
    return;
  }
  constexpr int groups = K / 64;
  const Ring ring{shared_address(dynamic_shared()) + RecurrenceShared<K, groups>::kBarriers};
  if (thread == 0) {
    ring.init(4 * groups);
  }
  sync_block();
  if (thread >= 128 * groups + kFeedThreads) {
    fewer_registers<S::kIdleRegisters>();
  } else if (thread >= 128 * groups) {
    fewer_registers<S::kFeedRegisters>();
    for_flow_items<K, kEngine, kWalk>(p.walk, block_index(), [&](auto& walk, WalkPlace& place) {
      walk.feed(ring, thread - 128 * groups, place);
    });
  } else {
    more_registers<S::kComputeRegisters>();
    for_flow_items<K, kEngine, kWalk>(p.walk, block_index(), [&](auto& walk, WalkPlace& place) { walk.compute(ring, thread, place); });
  }
#endif
}

}  // namespace longhaul::kda::cuda
