// See async_save.h.
#include "checkpoint/async_save.h"

#include <algorithm>

#include "checkpoint/async_save_state.h"
#include "checkpoint/rank_report.h"
#include "checkpoint/together.h"

namespace longhaul {

namespace fs = std::filesystem;

AsyncSaver::AsyncSaver(HostComm& comm, SaveOptions options, int64_t staging_bytes)
    : comm_(comm), options_(std::move(options)), ring_(staging_bytes) {
  LH_CHECK(staging_bytes >= 2 * Staging::kBytes, "a staging buffer needs at least {} bytes, got {}", 2 * Staging::kBytes, staging_bytes);
}

AsyncSaver::~AsyncSaver() { abandon(); }

void AsyncSaver::begin(const fs::path& run_directory, CheckpointContent content) {
  LH_CHECK(!is_pending(), "the save of step {} is not finished", save_->content.info.step);
  // Parts that must be copied now come first in the file, so that the thread writes them first and their room is free soon.
  const auto urgency = [](const Piece& piece) {
    return piece.stability == Stability::None ? 0 : piece.data.device().kind == DeviceKind::Cpu ? 2 : 1;
  };
  std::stable_sort(content.pieces.begin(), content.pieces.end(), [&](const Piece& a, const Piece& b) { return urgency(a) < urgency(b); });
  auto save = std::make_unique<Save>(checkpoints_directory(run_directory), std::move(content), options_.fault);
  StallTimer timer(*save);
  const WarningSink warn = [&](const std::string& text) { save->warnings.push_back(text); };
  run_together(comm_, save->action, [&] {
    if (comm_.rank() == 0) {
      prepare_checkpoints(save->checkpoints, warn);
      prepare_staging(save->paths, warn);
    }
  });
  try {
    run_together(comm_, save->action, [&] {
      for (const Piece& piece : save->content.pieces) {
        LH_CHECK(!piece.source, "\"{}\" has a source, and can be saved by save_checkpoint only", piece.name);
      }
      save->writer.emplace(save->paths.staging / rank_file_name(comm_.rank()), save->content.pieces, options_.compression,
                           save->progress);
    });
  } catch (const Error&) {
    if (comm_.rank() == 0) {
      remove_quietly(save->paths.staging);
    }
    throw;
  }
  // The shorter of two steps, because something else may have lain within one. Not known at first: then it is due now.
  save->release_due = monotonic_seconds() + std::min(seconds_to_release_[0], seconds_to_release_[1]);
  save->states.assign(save->writer->parts().size(), PartState::Live);
  save->places.assign(save->states.size(), -1);
  for (const FilePart& part : save->writer->parts()) {
    save->bytes_left += part.data.bytes();
  }
  save_ = std::move(save);
  start_thread(&AsyncSaver::write_file);
  if (copy_changing_and_device_parts()) {
    save_->snapshot = std::thread([this] { take_snapshot(*save_); });
  }
}

void AsyncSaver::release_tensors() {
  if (step_began_ > 0) {
    seconds_to_release_ = {seconds_to_release_[1], monotonic_seconds() - step_began_};
  }
  if (!is_pending() || save_->phase != Phase::Writing) {
    return;
  }
  const StallTimer timer(*save_);
  for (size_t number = 0; number < save_->states.size(); ++number) {
    copy_part(number, Wait::Yes);
  }
  const auto is_read_now = [](PartState state) { return state == PartState::Reading || state == PartState::Copying; };
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return std::none_of(save_->states.begin(), save_->states.end(), is_read_now); });
}

std::optional<FinishedSave> AsyncSaver::poll() {
  step_began_ = monotonic_seconds();
  if (!is_pending()) {
    return std::nullopt;
  }
  Save& save = *save_;
  StallTimer timer(save);
  enum : uint8_t { Busy, Done, Failed };
  uint8_t mine = Done;
  if (save.thread.joinable()) {
    const std::scoped_lock lock(mutex_);
    mine = !save.has_ended ? Busy : save.failure ? Failed : Done;
  }
  const std::vector<uint8_t> all = comm_.all_gather_value(mine);
  const bool has_failed = std::find(all.begin(), all.end(), Failed) != all.end();
  if (!has_failed && std::find(all.begin(), all.end(), Busy) != all.end()) {
    return std::nullopt;
  }
  if (has_failed) {
    timer.stop();
    require_success();
  }
  end_threads(save);
  if (save.phase == Phase::Writing) {
    save.phase = Phase::Completing;
    save.reports = gather_reports(comm_, save.report);
    if (comm_.rank() == 0) {
      start_thread(&AsyncSaver::complete);
    }
    return std::nullopt;
  }
  save.stalled = timer.stop();
  return take_result();
}

// A thread has failed: ends those of the other ranks, and throws on all.
void AsyncSaver::require_success() {
  std::unique_ptr<Save> save;
  {
    const std::scoped_lock lock(mutex_);
    save_->is_given_up = true;
    moved_.notify_all();
  }
  end_threads(*save_);
  ring_.clear();
  save = std::move(save_);
  save->writer.reset();
  try {
    run_together(comm_, save->action, [&] {
      if (save->failure) {
        std::rethrow_exception(save->failure);
      }
    });
  } catch (const Error&) {
    if (comm_.rank() == 0) {
      remove_quietly(save->paths.staging);  // no rank writes any more
    }
    throw;
  }
}

FinishedSave AsyncSaver::take_result() {
  const std::unique_ptr<Save> save = std::move(save_);
  ring_.clear();
  if (options_.warn) {
    for (const std::string& text : save->warnings) {
      options_.warn(text);
    }
  }
  comm_.broadcast_value(save->bytes, 0);
  double seconds = save->ended - save->began;  // rank 0's clock
  comm_.broadcast_value(seconds, 0);
  return {.saved = {.path = save->paths.target, .bytes = save->bytes}, .step = save->content.info.step, .seconds = seconds,
          .stall_seconds = save->stalled};
}

std::optional<FinishedSave> AsyncSaver::finish(const std::function<void()>& progress) {
  while (is_pending()) {
    wait_for_thread(progress);
    if (std::optional<FinishedSave> result = poll()) {
      return result;
    }
  }
  return std::nullopt;
}

void AsyncSaver::wait_for_thread(const std::function<void()>& progress) {
  const Save& save = *save_;
  if (!save.thread.joinable()) {
    return;
  }
  const StallTimer timer(*save_);
  std::unique_lock lock(mutex_);
  while (!save.has_ended) {
    const int64_t seen = save.num_written;
    if (progress) {
      progress();
    }
    moved_.wait(lock, [&] { return save.has_ended || save.num_written != seen; });
  }
}

// They have ended, or will at once.
void AsyncSaver::end_threads(Save& save) {
  for (std::thread* thread : {&save.thread, &save.snapshot}) {
    if (thread->joinable()) {
      thread->join();
    }
  }
}

void AsyncSaver::abandon() noexcept {
  if (!is_pending()) {
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    save_->is_given_up = true;
    moved_.notify_all();
  }
  end_threads(*save_);
  save_.reset();
}

}  // namespace longhaul
