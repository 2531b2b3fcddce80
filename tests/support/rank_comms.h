// Data planes for tests over MPI that move the same tensors whole and in many pieces.
#pragma once

#include <memory>
#include <vector>

#include "comm/device_comm.h"
#include "tests/support/rank_checks.h"

namespace longhaul::testing {

// The data plane with messages of ordinary size, and of a few bytes: pieces of one to seven elements.
[[nodiscard]] inline std::vector<std::unique_ptr<DeviceComm>> comms_of_all_sizes() {
  std::vector<std::unique_ptr<DeviceComm>> comms;
  for (const int64_t max_message_bytes : {int64_t{1} << 30, int64_t{8}, int64_t{56}}) {
    comms.push_back(rank_world().make_cpu_device_comm({.name = "test", .journal = &rank_journal(), .max_message_bytes = max_message_bytes}));
  }
  return comms;
}

}  // namespace longhaul::testing
