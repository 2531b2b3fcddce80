// Host memory beside a rank's tensors, from which messages can be sent, and the copies between the two. With a CudaContext the
// tensors are on its GPU, the memory is page-locked and copies run on the context's stream, so they follow the work that made
// the data and precede the work that uses it. Without one the tensors are in the host's memory too: what stages data is then
// tested without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/cuda_context.h"
#include "device/pinned_buffer.h"

namespace longhaul {

class Staging {
 public:
  // `cuda`, if there is one, must outlive the staging.
  explicit Staging(CudaContext* cuda) : cuda_(cuda) {}

  [[nodiscard]] Device device() const noexcept { return cuda_ == nullptr ? Device{} : cuda_->device(); }

  // Enqueued in order; finished after wait().
  void copy_down(const std::byte* tensor, std::byte* host, int64_t bytes) const;
  void copy_up(const std::byte* host, std::byte* tensor, int64_t bytes) const;
  // The host waits for these copies and everything before them on the stream.
  void wait() const;

  // One block for the collective that runs now; grows to what was asked for most, and stays.
  [[nodiscard]] std::byte* scratch(int64_t bytes);
  // Blocks for transfers under way. What was given back is taken again, because locking pages takes milliseconds.
  [[nodiscard]] PinnedBuffer take(int64_t bytes);
  void give_back(PinnedBuffer buffer);

 private:
  CudaContext* cuda_;
  PinnedBuffer scratch_;
  std::vector<PinnedBuffer> free_;
};

}  // namespace longhaul
