// See gpus.h.
#include "device/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace longhaul {

double peak_bf16_flops(const GpuInfo& gpu) {
  struct Known {
    std::string_view name;
    double flops;
  };
  // In this order: a name may contain another.
  constexpr std::array<Known, 6> kKnown{{{"H100 PCIe", 756e12}, {"H100", 989.4e12}, {"H200", 989.4e12}, {"A100", 312e12}, {"B200", 2250e12}, {"B300", 2250e12}}};
  const auto found = std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& known) { return gpu.name.find(known.name) != std::string::npos; });
  return found == kKnown.end() ? 0 : found->flops;
}

std::string describe_gpus() {
  std::string text;
  for (const GpuInfo& gpu : find_gpus()) {
    text += fmt::format("{}{} {}, compute {}.{}, {} multiprocessors, {:.1f} GiB", text.empty() ? "" : "\n", to_string(gpu.device), gpu.name,
                        gpu.compute_major, gpu.compute_minor, gpu.multiprocessors, static_cast<double>(gpu.total_bytes) / (1 << 30));
  }
  return text.empty() ? "none" : text;
}

}  // namespace longhaul
