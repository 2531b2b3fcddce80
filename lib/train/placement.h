// Where a rank computes: the CPU, or one of its node's GPUs; and whether a stage will fit there.
#pragma once

#include "comm/groups.h"
#include "comm/host_comm.h"
#include "device/cuda_context.h"
#include "train/plan.h"

namespace longhaul {

// The device of this rank. GPUs are given out by the rank's number on its node. DeviceError when the recipe wants a GPU and
// there is none, or when ranks would have to share GPUs that the communicator cannot share.
[[nodiscard]] Device place_rank(const Recipe& recipe, const HostComm& world);

// Throws OutOfMemoryError when the planned memory of this rank, in any stage, is more than its GPU has free; ranks that share
// a GPU share what is free, those of a host without GPUs its memory. Names the stage, the largest class and what to change.
void require_memory(const Recipe& recipe, const RunPlan& plan, const HostComm& world, Device device);

// How groups make their data plane: for CPU tensors, through NCCL, or staged through the host. `cuda` is null on the CPU.
[[nodiscard]] GroupsOptions groups_options(const Recipe& recipe, CudaContext* cuda, CommJournal* journal);

}  // namespace longhaul
