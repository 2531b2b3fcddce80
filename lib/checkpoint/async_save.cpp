// See async_save.h.
#include "checkpoint/async_save.h"

#include <algorithm>

#include "checkpoint/directory_names.h"
#include "checkpoint/rank_report.h"
#include "checkpoint/together.h"
#include "storage/hdf5_handle.h"

namespace longhaul {

namespace fs = std::filesystem;

namespace {

double now_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Thrown on a thread whose save was given up; nobody needs to hear of it.
struct GivenUp {};

}  // namespace

struct AsyncSaver::Save {
  Save(fs::path checkpoints_directory_, CheckpointContent content_, const FaultHook& fault)
      : checkpoints(std::move(checkpoints_directory_)),
        paths(save_paths(checkpoints / step_name(content_.info.step))),
        action(fmt::format("saving the checkpoint {}", paths.target.string())),
        content(std::move(content_)),
        progress(fault) {}

  fs::path checkpoints;
  SavePaths paths;
  std::string action;
  CheckpointContent content;
  SaveProgress progress;
  double began = now_seconds();
  double stalled = 0;
  Phase phase = Phase::Writing;

  std::optional<RankFileWriter> writer;
  std::string report;                // of this rank, by its thread
  std::vector<std::string> reports;  // rank 0, for its thread
  int64_t bytes = 0;                 // rank 0's thread
  double ended = 0;                  // rank 0's thread
  std::vector<std::string> warnings;

  // Under the mutex.
  std::vector<PartState> states;
  std::vector<int64_t> places;  // in the ring, of parts that are Copied
  int64_t num_written = 0;
  bool is_given_up = false;
  bool has_ended = false;  // the thread, in this phase
  std::exception_ptr failure;

  std::thread thread;
};

// Adds the time until the end of the scope to the save's stall.
class AsyncSaver::StallTimer {
 public:
  explicit StallTimer(Save& save) : save_(&save) {}
  ~StallTimer() {
    if (save_ != nullptr) {
      save_->stalled += now_seconds() - start_;
    }
  }
  StallTimer(const StallTimer&) = delete;
  StallTimer& operator=(const StallTimer&) = delete;
  // The save is about to go away.
  double stop() { return std::exchange(save_, nullptr)->stalled + now_seconds() - start_; }

 private:
  Save* save_;
  double start_ = now_seconds();
};

AsyncSaver::AsyncSaver(HostComm& comm, SaveOptions options, int64_t staging_bytes)
    : comm_(comm), options_(std::move(options)), ring_(staging_bytes) {
  LH_CHECK(staging_bytes >= 2 * Staging::kBytes, "a staging buffer needs at least {} bytes, got {}", 2 * Staging::kBytes, staging_bytes);
}

AsyncSaver::~AsyncSaver() { abandon(); }

void AsyncSaver::begin(const fs::path& run_directory, CheckpointContent content) {
  LH_CHECK(!is_pending(), "the save of step {} is not finished", save_->content.info.step);
  // Parts that must be copied now come first in the file, so that the thread writes them first and their room is free soon.
  const auto rank_of = [](const Piece& piece) { return piece.stability == Stability::None ? 0 : piece.data.device().kind == DeviceKind::Cpu ? 2 : 1; };
  std::stable_sort(content.pieces.begin(), content.pieces.end(), [&](const Piece& a, const Piece& b) { return rank_of(a) < rank_of(b); });
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
      save->writer.emplace(create_rank_file(save->paths.staging / rank_file_name(comm_.rank()), save->content.pieces), save->progress);
    });
  } catch (const Error&) {
    if (comm_.rank() == 0) {
      remove_quietly(save->paths.staging);
    }
    throw;
  }
  save->states.assign(save->writer->parts().size(), PartState::Live);
  save->places.assign(save->states.size(), -1);
  save_ = std::move(save);
  start_thread(&AsyncSaver::write_file);
  copy_changing_and_device_parts();
}

void AsyncSaver::start_thread(void (AsyncSaver::*work)(Save&)) {
  Save& save = *save_;
  save.has_ended = false;
  save.thread = std::thread([this, &save, work] {
    std::exception_ptr failure;
    try {
      (this->*work)(save);
    } catch (const GivenUp&) {
    } catch (...) {
      failure = std::current_exception();
    }
    const std::scoped_lock lock(mutex_);
    save.failure = failure;
    save.has_ended = true;
    moved_.notify_all();
  });
}

// --- the thread's side ---

void AsyncSaver::write_file(Save& save) {
  Staging own(options_.copy);
  for (size_t number = 0; number < save.states.size(); ++number) {
    save.writer->write_next(next_values(save, number, own));
    mark_written(save, number);
  }
  const WrittenFile file = save.writer->finish();
  save.report = report_text(file, save.content.rank_documents);
  save.progress.reach("after_rank_file");
}

// Where the values of a part can be read now. Waits for those that only the main thread may read: of a device, or such as
// may change.
TensorView AsyncSaver::next_values(Save& save, size_t number, Staging& own) {
  const FilePart& part = save.writer->parts()[number];
  const bool is_readable = save.content.pieces[part.piece].stability == Stability::UntilRelease && part.data.device().kind == DeviceKind::Cpu;
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return save.is_given_up || save.states[number] == PartState::Copied || is_readable; });
  if (save.is_given_up) {
    throw GivenUp{};
  }
  if (save.states[number] == PartState::Copied) {
    return {ring_.at(save.places[number]), part.data.dtype(), part.data.shape()};
  }
  save.states[number] = PartState::Reading;
  lock.unlock();
  return own.to_host(part.data);
}

void AsyncSaver::mark_written(Save& save, size_t number) {
  const std::scoped_lock lock(mutex_);
  if (save.states[number] == PartState::Copied) {
    ring_.give_back(save.places[number]);
  }
  save.states[number] = PartState::Written;
  ++save.num_written;
  moved_.notify_all();
}

void AsyncSaver::complete(Save& save) {
  const hdf5::ThreadClaim claim;
  const WarningSink warn = [&](const std::string& text) { save.warnings.push_back(text); };
  save.bytes = complete_checkpoint(save.paths, save.content, save.reports, options_.replacement, save.progress);
  save.ended = now_seconds();
  tidy_checkpoints({.checkpoints = save.checkpoints, .step = save.content.info.step, .keep = options_.keep, .major_every = options_.major_every},
                   save.progress, warn);
}

// --- the main thread's side ---

bool AsyncSaver::copy_part(size_t number, Wait wait) {
  Save& save = *save_;
  const FilePart& part = save.writer->parts()[number];
  std::optional<int64_t> place;
  {
    std::unique_lock lock(mutex_);
    const auto is_decided = [&] {
      if (save.states[number] == PartState::Live && !save.has_ended) {
        place = ring_.take(part.data.bytes());
        return place.has_value();
      }
      return true;  // the thread has taken it meanwhile, or has failed
    };
    if (wait == Wait::Yes) {
      moved_.wait(lock, is_decided);
    } else if (!is_decided()) {
      return false;
    }
    if (!place) {
      return true;
    }
    save.places[number] = *place;
    staging_high_water_ = std::max(staging_high_water_, ring_.used());
  }
  const TensorView copy(ring_.at(*place), part.data.dtype(), part.data.shape());
  Staging(options_.copy).copy_to_host(part.data, copy);
  const std::scoped_lock lock(mutex_);
  if (save.states[number] == PartState::Live) {
    save.states[number] = PartState::Copied;
  } else {
    ring_.give_back(*place);  // the thread has read the tensor in the meantime: the same values
  }
  moved_.notify_all();
  return true;
}

void AsyncSaver::copy_changing_and_device_parts() {
  const std::vector<FilePart>& parts = save_->writer->parts();
  const auto is_changing = [&](const FilePart& part) { return save_->content.pieces[part.piece].stability == Stability::None; };
  const auto last_changing = std::find_if(parts.rbegin(), parts.rend(), is_changing).base() - parts.begin();
  for (size_t number = 0; number < parts.size(); ++number) {
    const bool must = static_cast<std::ptrdiff_t>(number) < last_changing;
    if (!is_changing(parts[number]) && parts[number].data.device().kind == DeviceKind::Cpu) {
      continue;
    }
    if (!copy_part(number, must ? Wait::Yes : Wait::No)) {
      return;  // the rest is copied before the update
    }
  }
}

void AsyncSaver::release_tensors() {
  if (!is_pending() || save_->phase != Phase::Writing) {
    return;
  }
  const StallTimer timer(*save_);
  for (size_t number = 0; number < save_->states.size(); ++number) {
    copy_part(number, Wait::Yes);
  }
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] {
    return save_->has_ended || std::find(save_->states.begin(), save_->states.end(), PartState::Reading) == save_->states.end();
  });
}

std::optional<FinishedSave> AsyncSaver::poll() {
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
  if (save.thread.joinable()) {
    save.thread.join();
  }
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
  if (save_->thread.joinable()) {
    save_->thread.join();
  }
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

void AsyncSaver::abandon() noexcept {
  if (!is_pending()) {
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    save_->is_given_up = true;
    moved_.notify_all();
  }
  if (save_->thread.joinable()) {
    save_->thread.join();
  }
  save_.reset();
}

}  // namespace longhaul
