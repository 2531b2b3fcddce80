// One outcome for all ranks: a rank that fails alone while the others wait for it would hang the run.
#pragma once

#include <functional>
#include <string_view>

#include "comm/host_comm.h"

namespace longhaul {

// Runs `work` on every rank, then tells all ranks. Where at least one failed, every rank throws the same error: kind and
// message of the lowest rank that failed, which is named when there are several ranks. Collective.
void run_together(HostComm& comm, std::string_view action, const std::function<void()>& work);

}  // namespace longhaul
