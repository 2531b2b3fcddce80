// Where an operation runs and where its temporary memory comes from. Passed by reference to every operation.
//
// Planning: with Mode::Plan an operation validates its arguments, takes its scratch from a measuring arena and returns
// without touching data. Running a whole training step this way yields the exact memory it needs, and checks every
// shape, before anything is allocated.
#pragma once

#include <cstdint>
#include <utility>

#include "device/arena.h"
#include "device/device.h"

namespace longhaul {

class ExecContext {
 public:
  enum class Mode : uint8_t { Execute, Plan };

  ExecContext(Device device, Mode mode, Arena scratch) : device_(device), mode_(mode), scratch_(std::move(scratch)) {}

  // A context with scratch that grows, for tests and tools.
  [[nodiscard]] static ExecContext cpu() {
    return {Device{}, Mode::Execute, Arena(Device{}, "scratch", 0, Arena::Growth::Chunked)};
  }
  [[nodiscard]] static ExecContext plan(Device device) {
    return {device, Mode::Plan, Arena::measuring(device, "scratch")};
  }

  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] bool is_planning() const noexcept { return mode_ == Mode::Plan; }
  // Temporary memory; take it inside an ArenaScope.
  [[nodiscard]] Arena& scratch() noexcept { return scratch_; }

 private:
  Device device_;
  Mode mode_;
  Arena scratch_;
};

}  // namespace longhaul
