// Saves a checkpoint while training goes on. What it writes, and what a kill leaves behind, is as in save.h; only when things
// happen differs:
//
//   begin            rank 0 prepares the directory; a thread of each rank, the writer, lays out its rank file and starts to write.
//                    Weights and optimizer state do not change before the next update, so it reads them where they are.
//   (snapshot)       a second thread copies into a staging buffer of fixed size what the writer will not have reached when the
//                    update is due, from the end of the file on, while the step is computed.
//   release_tensors  just before that update: the calling thread helps to copy what is left. Where the buffer is full, the step
//                    waits for the writer; that is the only place where it does.
//   poll             at the end of a step, together: nothing while a rank still writes. When all have, rank 0's thread makes
//                    index, manifest and the rename; then the save is over.
//   finish           waits for all of that: before the next save, before anything is loaded, before the end.
//
// Ranks communicate in begin, poll and finish alone, never on the threads, so MPI needs no support for threads. HDF5 belongs to
// the writer while it lays out the file, and to rank 0's thread while it completes the checkpoint: an hdf5::ThreadClaim refuses
// everybody else. An error of a thread is thrown by the next poll or finish, on all ranks alike; the directory of the save is
// removed then.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/rank_file.h"
#include "checkpoint/save.h"
#include "checkpoint/save_phases.h"
#include "checkpoint/staging_ring.h"

namespace longhaul {

struct FinishedSave {
  SavedCheckpoint saved;
  int64_t step = 0;
  double seconds = 0;        // from begin to the rename
  double stall_seconds = 0;  // that this rank spent in the functions of AsyncSaver
};

class AsyncSaver {
 public:
  // `comm` must outlive the saver. The staging buffer is allocated with the first part that needs it, and kept.
  AsyncSaver(HostComm& comm, SaveOptions options, int64_t staging_bytes);
  // A save that is not finished is given up: its directory stays in progress, and the next save removes it.
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Into RUN/checkpoints. Nothing may be pending. The tensors of `content` must live until release_tensors has returned, and
  // those whose pieces are not Stability::UntilRelease may change now. Pieces with a source are refused. Collective.
  void begin(const std::filesystem::path& run_directory, CheckpointContent content);
  [[nodiscard]] bool is_pending() const noexcept { return save_ != nullptr; }
  // After this the tensors may change. Returns at once where nothing is pending; called all the same before every update, it
  // tells how long a step takes to get there, and so when a snapshot must be ready. Not collective.
  void release_tensors();
  // At the end of every step. Nothing while the save goes on, or where none is pending. Collective. CheckpointError.
  [[nodiscard]] std::optional<FinishedSave> poll();
  // Waits for the end of a pending save; nothing where none is pending. `progress` is called whenever this rank's thread has
  // come further: a watchdog's beat. Collective. CheckpointError.
  [[nodiscard]] std::optional<FinishedSave> finish(const std::function<void()>& progress = {});

  // The most bytes that were in the staging buffer at once, of all saves.
  [[nodiscard]] int64_t staging_high_water() const {
    const std::scoped_lock lock(mutex_);
    return staging_high_water_;
  }

 private:
  // Of a part: Live, it is nowhere but in its tensor; Reading, the writer takes it from there; Copying, another thread does;
  // Copied, it waits in the staging buffer; Written.
  enum class PartState : uint8_t { Live, Reading, Copying, Copied, Written };
  enum class Phase : uint8_t { Writing, Completing };
  struct Save;
  class StallTimer;

  void write_file(Save& save);
  void take_snapshot(Save& save);
  [[nodiscard]] bool wait_until_copying_is_due(Save& save);
  void complete(Save& save);
  void start_thread(void (AsyncSaver::*work)(Save&));
  [[nodiscard]] TensorView next_values(Save& save, size_t number, Staging& own);
  void mark_written(Save& save, size_t number);
  // Copies part `number` into the staging buffer if it is still nowhere else; false when there was no room and `wait` is no.
  enum class Wait : uint8_t { No, Yes };
  bool copy_part(size_t number, Wait wait);
  // False when some must be left to release_tensors.
  bool copy_changing_and_device_parts();
  void end_threads(Save& save);
  void wait_for_thread(const std::function<void()>& progress);
  void abandon() noexcept;
  void require_success();
  [[nodiscard]] FinishedSave take_result();

  HostComm& comm_;
  SaveOptions options_;
  StagingRing ring_;
  int64_t staging_high_water_ = 0;
  double step_began_ = 0;                      // the last poll; 0: none yet
  std::array<double, 2> seconds_to_release_{};  // from there to release_tensors, of the last two steps
  mutable std::mutex mutex_;       // over the parts' states, the ring, and the flags of the pending save
  std::condition_variable moved_;  // one of these has changed
  std::unique_ptr<Save> save_;     // null where nothing is pending
};

}  // namespace longhaul
