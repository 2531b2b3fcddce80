// The scan on a GPU: the library's own kernels, which compute in bf16 with tiles of 16 rows.
#pragma once

#include "tools/decay_scan/scan.h"

namespace longhaul::decay {

// DeviceError where there is no GPU, or in a build without CUDA.
[[nodiscard]] Run gpu_run();
[[nodiscard]] bool is_for_gpu(int64_t tile, Precision precision);

}  // namespace longhaul::decay
