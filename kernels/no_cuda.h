// What an operation without a CUDA version does when it is asked to run on a GPU. Planning never gets here, so a
// machine without a GPU can still check shapes and memory for one.
#pragma once

#include <string_view>

#include "base/error.h"

namespace longhaul {

[[noreturn]] inline void throw_no_cuda(std::string_view op) {
  throw DeviceError("no CUDA version of {} in this build; run it with the cpu backend, or build with LONGHAUL_CUDA=ON", op);
}

}  // namespace longhaul
