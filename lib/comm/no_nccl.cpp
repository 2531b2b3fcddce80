// Stands in for nccl_device_comm.cpp in builds without NCCL.
#include "comm/nccl_device_comm.h"

namespace longhaul {

std::unique_ptr<DeviceComm> make_nccl_device_comm(HostComm& host, CudaContext&, NcclChannels, DeviceCommOptions) {
  throw DeviceError("{} ranks were to communicate through NCCL, but this program was built without it; build where nccl.h is found, or use "
                    "`communicator: staged`", host.size());
}

std::string nccl_version() { return "built without"; }

}  // namespace longhaul
