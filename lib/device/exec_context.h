// Where an operation runs and where its temporary memory comes from. Passed by reference to every operation.
//
// Planning: with Mode::Plan an operation validates its arguments, takes its scratch from a measuring arena and returns
// without touching data. Running a whole training step this way yields the exact memory it needs, and checks every
// shape, before anything is allocated. Planning for a GPU needs no GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "device/arena.h"
#include "device/cuda_context.h"
#include "device/device.h"

namespace longhaul {

class ExecContext {
 public:
  enum class Mode : uint8_t { Execute, Plan };

  // `cuda` must outlive the context; operations on a GPU need it, planning and the CPU do not.
  ExecContext(Device device, Mode mode, Arena scratch, CudaContext* cuda = nullptr)
      : device_(device), mode_(mode), scratch_(std::move(scratch)), cuda_(cuda) {}

  // A context with scratch that grows, for tests and tools.
  [[nodiscard]] static ExecContext cpu() {
    return {Device{}, Mode::Execute, Arena(Device{}, "scratch", 0, Arena::Growth::Chunked)};
  }
  [[nodiscard]] static ExecContext plan(Device device) {
    return {device, Mode::Plan, Arena::measuring(device, "scratch")};
  }
  // The same on a GPU, with a CudaContext of its own that waits after every launch.
  [[nodiscard]] static ExecContext cuda(Device device);

  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] bool is_planning() const noexcept { return mode_ == Mode::Plan; }
  // Temporary memory; take it inside an ArenaScope.
  [[nodiscard]] Arena& scratch() noexcept { return scratch_; }
  // InternalError when there is none.
  [[nodiscard]] CudaContext& cuda_context() const {
    if (cuda_ == nullptr) {
      throw_no_context(device_);
    }
    return *cuda_;
  }

 private:
  [[noreturn]] static void throw_no_context(Device device);

  Device device_;
  Mode mode_;
  std::unique_ptr<CudaContext> owned_;  // before the arena: its memory is freed first
  Arena scratch_;
  CudaContext* cuda_ = nullptr;
};

}  // namespace longhaul
