// The steps of saving and loading that ranks take together: a rank that fails alone while the others wait for it would
// hang the run.
#pragma once

#include <functional>
#include <string_view>

#include "comm/host_comm.h"

namespace longhaul {

// Runs `work` on every rank; when it fails on at least one, every rank throws the error of the lowest such rank (see
// run_agreed), with `action` as its context. Failures of the file system are CheckpointErrors. Collective.
void run_together(HostComm& comm, std::string_view action, const std::function<void()>& work);

}  // namespace longhaul
