// Data planes for tests that must hold for each: staged with tensors on the host (everywhere), staged with tensors on a GPU (where
// there is one; all ranks share GPU 0 when they are more than the GPUs), and NCCL (where every rank has a GPU of its own).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/nccl_device_comm.h"
#include "comm/staged_device_comm.h"
#include "device/copy_bytes.h"
#include "device/gpus.h"
#include "tensor/tensor.h"
#include "tests/support/rank_checks.h"

namespace longhaul::testing {

// Tensors go up and down on the context's stream: nothing but the stream orders them with the communication.
class DevicePlane {
 public:
  DevicePlane(std::string plane_name, std::unique_ptr<DeviceComm> device_comm, CudaContext* cuda)
      : name(std::move(plane_name)), comm(std::move(device_comm)), cuda_(cuda) {}

  std::string name;
  std::unique_ptr<DeviceComm> comm;

  [[nodiscard]] Tensor up(const Tensor& host) const {
    Tensor tensor(host.view().spec(), cuda_ == nullptr ? Device{} : cuda_->device());
    copy(host, tensor);
    return tensor;
  }
  [[nodiscard]] Tensor down(const TensorView& view) const {
    Tensor host(view.spec());
    copy(view, host);
    if (cuda_ != nullptr) {
      cuda_->stream().synchronize();
    }
    return host;
  }

 private:
  void copy(const TensorView& from, const TensorView& to) const {
    if (cuda_ == nullptr) {
      copy_bytes({from.device(), from.raw()}, {to.device(), to.raw()}, from.bytes());
    } else {
      copy_bytes_async(cuda_->stream(), {from.device(), from.raw()}, {to.device(), to.raw()}, from.bytes());
    }
  }

  CudaContext* cuda_;
};

class DevicePlanes {
 public:
  // Collective over rank_world().
  explicit DevicePlanes(NcclChannels channels = NcclChannels::Neighbours) {
    HostComm& world = rank_world();
    for (const int64_t bytes : {StagedDeviceComm::kStagingBytes, int64_t{8}, int64_t{100}}) {
      add("staged on the host", std::make_unique<StagedDeviceComm>(inner(), nullptr, options(), bytes), nullptr);
    }
    const int gpus = static_cast<int>(find_gpus().size());
    if (!world.agree(gpus > 0)) {
      return;
    }
    const bool has_own = world.agree(world.local_size() <= gpus);
    cuda_.emplace(Device{DeviceKind::Cuda, has_own ? world.local_rank() : 0});
    for (const int64_t bytes : {StagedDeviceComm::kStagingBytes, int64_t{100}}) {
      add("staged", std::make_unique<StagedDeviceComm>(inner(), &*cuda_, options(), bytes), &*cuda_);
    }
    if (has_own && nccl_version() != "built without") {
      add("nccl", make_nccl_device_comm(world, *cuda_, channels, options()), &*cuda_);
    }
  }

  [[nodiscard]] auto begin() const { return planes_.begin(); }
  [[nodiscard]] auto end() const { return planes_.end(); }
  // Null where there is no GPU.
  [[nodiscard]] CudaContext* cuda() { return cuda_ ? &*cuda_ : nullptr; }

 private:
  [[nodiscard]] static std::unique_ptr<DeviceComm> inner() { return rank_world().make_cpu_device_comm({.name = "inner"}); }
  [[nodiscard]] static DeviceCommOptions options() { return {.name = "test", .journal = &rank_journal()}; }
  void add(std::string name, std::unique_ptr<DeviceComm> comm, CudaContext* cuda) {
    planes_.emplace_back(std::move(name), std::move(comm), cuda);
  }

  std::optional<CudaContext> cuda_;
  std::vector<DevicePlane> planes_;
};

}  // namespace longhaul::testing
