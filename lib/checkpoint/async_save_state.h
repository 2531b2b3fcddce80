// A save in the background and what its threads share; for async_save.cpp and async_save_parts.cpp alone.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/async_save.h"
#include "checkpoint/directory_names.h"

namespace longhaul {

inline double monotonic_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct AsyncSaver::Save {
  Save(std::filesystem::path checkpoints_directory_, CheckpointContent content_, const FaultHook& fault)
      : checkpoints(std::move(checkpoints_directory_)),
        paths(save_paths(checkpoints / step_name(content_.info.step))),
        action(fmt::format("saving the checkpoint {}", paths.target.string())),
        content(std::move(content_)),
        progress(fault) {}

  std::filesystem::path checkpoints;
  SavePaths paths;
  std::string action;
  CheckpointContent content;
  SaveProgress progress;
  double began = monotonic_seconds();
  double stalled = 0;
  Phase phase = Phase::Writing;

  std::optional<RankFileWriter> writer;
  double release_due = 0;            // when release_tensors is expected, by monotonic_seconds
  std::string report;                // of this rank, by its thread
  std::vector<std::string> reports;  // rank 0, for its thread
  int64_t bytes = 0;                 // rank 0's thread
  double ended = 0;                  // rank 0's thread
  std::vector<std::string> warnings;

  // Under the mutex.
  std::vector<PartState> states;
  std::vector<int64_t> places;  // in the ring, of parts that are Copied
  int64_t num_written = 0;      // parts
  int64_t bytes_written = 0;
  int64_t bytes_left = 0;       // of parts that are Live
  double writing_began = 0;     // 0: the file is still being laid out
  bool is_given_up = false;
  bool has_ended = false;  // the thread, in this phase
  std::exception_ptr failure;

  std::thread thread;    // the writer, then the one that completes
  std::thread snapshot;  // may be none
};

// Adds the time until the end of the scope to the save's stall.
class AsyncSaver::StallTimer {
 public:
  explicit StallTimer(Save& save) : save_(&save) {}
  ~StallTimer() {
    if (save_ != nullptr) {
      save_->stalled += monotonic_seconds() - start_;
    }
  }
  StallTimer(const StallTimer&) = delete;
  StallTimer& operator=(const StallTimer&) = delete;
  // The save is about to go away.
  double stop() { return std::exchange(save_, nullptr)->stalled + monotonic_seconds() - start_; }

 private:
  Save* save_;
  double start_ = monotonic_seconds();
};

}  // namespace longhaul
