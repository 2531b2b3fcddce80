// Names a device: where memory lives and operations run.
#pragma once

#include <cstdint>
#include <string>

namespace longhaul {

enum class DeviceKind : uint8_t { Cpu, Cuda };

struct Device {
  DeviceKind kind = DeviceKind::Cpu;
  int index = 0;  // of the GPU on this node; 0 on the CPU

  friend bool operator==(const Device&, const Device&) = default;
};

[[nodiscard]] std::string to_string(Device device);

}  // namespace longhaul
