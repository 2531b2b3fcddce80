// A group of one rank, for tests of layers and models that take a group.
#pragma once

#include "comm/group.h"
#include "comm/loopback_device_comm.h"
#include "comm/self_host_comm.h"

namespace longhaul::testing {

struct Alone {
  SelfHostComm host;
  LoopbackDeviceComm device;
  Group group{"alone", 0, 1, host, device};
};

}  // namespace longhaul::testing
