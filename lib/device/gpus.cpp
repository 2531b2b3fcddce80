// See gpus.h.
#include "device/gpus.h"

#include <fmt/format.h>

namespace longhaul {

std::string describe_gpus() {
  std::string text;
  for (const GpuInfo& gpu : find_gpus()) {
    text += fmt::format("{}{} {}, compute {}.{}, {} multiprocessors, {:.1f} GiB", text.empty() ? "" : "\n", to_string(gpu.device), gpu.name,
                        gpu.compute_major, gpu.compute_minor, gpu.multiprocessors, static_cast<double>(gpu.total_bytes) / (1 << 30));
  }
  return text.empty() ? "none" : text;
}

}  // namespace longhaul
