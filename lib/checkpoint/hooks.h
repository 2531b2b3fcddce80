// What a save tells its caller while it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace longhaul {

// Called at named points of a save on every rank that passes them, with the bytes that this rank has written so far in
// this save. A test kills the process in it, or throws. Points, in order: "bytes" (after every write), "after_rank_file",
// and on rank 0 "before_index", "before_manifest", "before_rename", "between_renames" (only where a checkpoint of the
// same step is replaced and the file system cannot exchange names), "before_latest", "before_retention".
using FaultHook = std::function<void(std::string_view point, int64_t bytes)>;

// Called on rank 0 with one line for whoever reads the log.
using WarningSink = std::function<void(const std::string& text)>;

// Counts the bytes of one save and passes points on.
class SaveProgress {
 public:
  explicit SaveProgress(FaultHook hook) : hook_(std::move(hook)) {}

  void wrote(int64_t bytes) {
    bytes_ += bytes;
    reach("bytes");
  }
  void reach(std::string_view point) const {
    if (hook_) {
      hook_(point, bytes_);
    }
  }
  [[nodiscard]] int64_t bytes() const noexcept { return bytes_; }

 private:
  FaultHook hook_;
  int64_t bytes_ = 0;
};

}  // namespace longhaul
