// DeviceComm over NCCL: tensors on a GPU, one rank a GPU. This header needs neither NCCL nor CUDA; without NCCL in the build
// the function throws DeviceError.
//
// Collectives are enqueued on the context's stream and return at once: they follow the work before them, later work follows
// them, and the host waits for nothing. Their communicator is made at the first of them, so a group that is never used costs
// nothing. Row counts travel on the host, and so does the maximum of floats, because ncclMax loses NaN.
//
// Messages. A send occupies its stream until the receiver has come. If all messages of a rank shared one stream, or one
// communicator (NCCL runs the operations of a communicator one after the other, on whatever streams), two neighbours which both
// send first would wait for ever. Therefore a group with NcclChannels::Neighbours has four channels, each a communicator with a
// stream. A message goes through the channel (source < target, lower rank of the two is odd):
//
//   rank          0         1         2         3
//   upwards          even →    odd →     even →          a channel serves each rank as one end of one pair at most, in one
//   downwards        ← even    ← odd     ← even          direction; so a transfer waits for earlier ones of its own pair only
//
// The ring's closing pair (last, 0) uses the channel of (0, 1) in the other direction of travel, where a one-way ring has no
// other traffic. So the order of transfers between neighbours is that of MPI with one tag, and a schedule that is free of
// deadlock there is free of it here: compute waits for a transfer only where the schedule waits for it. Pairs are connected
// when the group is made, all at once, because NCCL connects at the first message by waiting for the peer on the host. Ranks
// that are not neighbours, a rank with itself and groups without channels send through the host (staged_device_comm.h).
// Streams are mapped to CUDA_DEVICE_MAX_CONNECTIONS hardware queues, 8 by default; the stream of the context and four
// channels fit.
//
// Failures. Errors that NCCL reports are looked for at every operation and wait, and all the time in finish(); they abort the
// communicator and become CommError. A peer on the same node that dies without a word is not noticed by NCCL: mpirun or the
// watchdog ends such a job.
#pragma once

#include <memory>
#include <string>

#include "comm/device_comm.h"
#include "comm/host_comm.h"
#include "device/cuda_context.h"

namespace longhaul {

enum class NcclChannels : uint8_t { None, Neighbours };

// Collective over `host`, which must outlive the result, as must `cuda`. On all ranks alike DeviceError when two ranks use one
// GPU, or when there is no NCCL to load.
[[nodiscard]] std::unique_ptr<DeviceComm> make_nccl_device_comm(HostComm& host, CudaContext& cuda, NcclChannels channels,
                                                                DeviceCommOptions options);

// The version that this program was built for ("2.28.9"), or "built without". Loads nothing.
[[nodiscard]] std::string nccl_version();

}  // namespace longhaul
