// The parts of a rank's file: read by the writer where they lie, or copied into the staging buffer by a thread that takes a
// snapshot and by the one that trains. See async_save.h.
#include <algorithm>

#include "checkpoint/async_save_state.h"
#include "checkpoint/rank_report.h"
#include "storage/hdf5_handle.h"

namespace longhaul {

namespace {

// Thrown on a thread whose save was given up; nobody needs to hear of it.
struct GivenUp {};

// Bytes a second that copying within the host's memory reaches where others use it too; to begin in time, not too late.
constexpr double kCopyRate = 1e9;
constexpr double kLookAgain = 5e-3;  // seconds

}  // namespace

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

void AsyncSaver::write_file(Save& save) {
  std::optional<hdf5::ThreadClaim> claim(std::in_place);
  save.writer->create();
  if (options_.compression == Compression::None) {
    claim.reset();
  }
  {
    const std::scoped_lock lock(mutex_);
    save.writing_began = monotonic_seconds();
  }
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
  const bool is_stable = save.content.pieces[part.piece].stability == Stability::UntilRelease;
  const bool is_readable = is_stable && part.data.device().kind == DeviceKind::Cpu;
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] {
    const PartState state = save.states[number];
    return save.is_given_up || state == PartState::Copied || (is_readable && state == PartState::Live);
  });
  if (save.is_given_up) {
    throw GivenUp{};
  }
  if (save.states[number] == PartState::Copied) {
    return {ring_.at(save.places[number]), part.data.dtype(), part.data.shape()};
  }
  save.states[number] = PartState::Reading;
  save.bytes_left -= part.data.bytes();
  lock.unlock();
  return own.to_host(part.data);
}

void AsyncSaver::mark_written(Save& save, size_t number) {
  const std::scoped_lock lock(mutex_);
  if (save.states[number] == PartState::Copied) {
    ring_.give_back(save.places[number]);
  }
  save.states[number] = PartState::Written;
  save.bytes_written += save.writer->parts()[number].data.bytes();
  ++save.num_written;
  moved_.notify_all();
}

void AsyncSaver::complete(Save& save) {
  const hdf5::ThreadClaim claim;
  const WarningSink warn = [&](const std::string& text) { save.warnings.push_back(text); };
  save.bytes = complete_checkpoint(save.paths, save.content, save.reports, options_.replacement, save.progress);
  save.ended = monotonic_seconds();
  tidy_checkpoints({.checkpoints = save.checkpoints,
                    .step = save.content.info.step,
                    .keep = options_.keep,
                    .major_every = options_.major_every},
                   save.progress, warn);
}

bool AsyncSaver::copy_part(size_t number, Wait wait) {
  Save& save = *save_;
  const FilePart& part = save.writer->parts()[number];
  std::optional<int64_t> place;
  {
    std::unique_lock lock(mutex_);
    const auto is_decided = [&] {
      if (save.states[number] == PartState::Live && !save.has_ended && !save.is_given_up) {
        place = ring_.take(part.data.bytes());
        return place.has_value();
      }
      return true;  // another thread has taken it meanwhile, or the save is over
    };
    if (wait == Wait::Yes) {
      moved_.wait(lock, is_decided);
    } else if (!is_decided()) {
      return false;
    }
    if (!place) {
      return true;
    }
    save.states[number] = PartState::Copying;
    save.places[number] = *place;
    save.bytes_left -= part.data.bytes();
    staging_high_water_ = std::max(staging_high_water_, ring_.used());
  }
  const TensorView copy(ring_.at(*place), part.data.dtype(), part.data.shape());
  Staging(options_.copy).copy_to_host(part.data, copy);
  const std::scoped_lock lock(mutex_);
  save.states[number] = PartState::Copied;
  moved_.notify_all();
  return true;
}

bool AsyncSaver::copy_changing_and_device_parts() {
  const std::vector<FilePart>& parts = save_->writer->parts();
  const auto is_changing = [&](const FilePart& part) { return save_->content.pieces[part.piece].stability == Stability::None; };
  const auto last_changing = std::find_if(parts.rbegin(), parts.rend(), is_changing).base() - parts.begin();
  for (size_t number = 0; number < parts.size(); ++number) {
    const bool must = static_cast<std::ptrdiff_t>(number) < last_changing;
    if (!is_changing(parts[number]) && parts[number].data.device().kind == DeviceKind::Cpu) {
      continue;
    }
    if (!copy_part(number, must ? Wait::Yes : Wait::No)) {
      return false;  // the rest is copied before the update; its room must not be taken by what the writer reaches later
    }
  }
  return true;
}

// From the end on, because the writer comes from the beginning. Ends when it meets the writer or finds no room.
void AsyncSaver::take_snapshot(Save& save) {
  try {
    for (size_t number = save.states.size(); number-- > 0 && wait_until_copying_is_due(save) && copy_part(number, Wait::No);) {
    }
  } catch (const OutOfMemoryError&) {  // release_tensors will meet it again, where it can be told
  }
}

// Copying what the writer will reach in time is work for nothing, so it begins as late as it can. False when nothing is left.
bool AsyncSaver::wait_until_copying_is_due(Save& save) {
  std::unique_lock lock(mutex_);
  while (save.bytes_left > 0 && !save.has_ended && !save.is_given_up) {
    const double now = monotonic_seconds();
    const double left = static_cast<double>(save.bytes_left);
    const double seconds = save.release_due - now;
    const double written_by_then =
        save.writing_began > 0 ? static_cast<double>(save.bytes_written) / (now - save.writing_began) * seconds : 0.0;
    if (seconds <= left / kCopyRate && written_by_then < left) {
      return true;
    }
    moved_.wait_for(lock, std::chrono::duration<double>(kLookAgain));
  }
  return false;
}

}  // namespace longhaul
