// See device.h.
#include "device/device.h"

#include <fmt/format.h>

namespace longhaul {

std::string to_string(Device device) {
  return device.kind == DeviceKind::Cpu ? std::string("cpu") : fmt::format("cuda:{}", device.index);
}

}  // namespace longhaul
