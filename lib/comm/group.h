// The ranks that a layer works with: a small handle passed by const reference. A group of one rank is a real group whose
// collectives are copies or nothing, so no layer asks whether an axis is in use.
#pragma once

#include <string>

#include "comm/device_comm.h"
#include "comm/host_comm.h"

namespace longhaul {

// Does not own the communicators; Groups (groups.h) does.
struct Group {
  std::string name;
  int rank;  // of this process in the group
  int size;
  HostComm& host;
  DeviceComm& device;               // tensors where the layers compute
  DeviceComm& host_data = device;   // small CPU tensors: sums of losses, norms, counts; on the CPU backend the same

  [[nodiscard]] bool is_first() const noexcept { return rank == 0; }
  [[nodiscard]] bool is_last() const noexcept { return rank == size - 1; }
};

}  // namespace longhaul
