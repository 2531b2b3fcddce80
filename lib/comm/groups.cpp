// See groups.h.
#include "comm/groups.h"

#include "comm/loopback_device_comm.h"
#include "comm/nccl_device_comm.h"
#include "comm/staged_device_comm.h"

namespace longhaul {

namespace {

// Channels cost memory and start-up time. Stages alone pass messages to their neighbours beside their work; transfers in other
// groups, of which there are none, would go through the host. See nccl_device_comm.h.
NcclChannels channels_of(GroupKind kind) {
  return kind == GroupKind::Pipeline ? NcclChannels::Neighbours : NcclChannels::None;
}

std::unique_ptr<DeviceComm> make_device_comm(HostComm& host, GroupKind kind, DeviceCommOptions device_options,
                                             const GroupsOptions& options) {
  if (options.data_plane == DataPlane::Mpi) {
    return host.make_cpu_device_comm(std::move(device_options));
  }
  LH_CHECK(options.cuda != nullptr, "groups for tensors on a GPU need its CudaContext");
  if (host.size() == 1) {
    return std::make_unique<LoopbackDeviceComm>(*options.cuda, std::move(device_options));
  }
  if (options.data_plane == DataPlane::Nccl) {
    return make_nccl_device_comm(host, *options.cuda, channels_of(kind), std::move(device_options));
  }
  return std::make_unique<StagedDeviceComm>(host.make_cpu_device_comm({.name = device_options.name}), options.cuda,
                                            std::move(device_options));
}

}  // namespace

Groups Groups::create(HostComm& world, const ParallelGrid& grid, const GroupsOptions& options) {
  LH_CHECK(world.size() == grid.world_size(), "the grid is for {} ranks, the communicator has {}", grid.world_size(), world.size());
  return Groups(world, grid, options);
}

// The members are initialised in the order of their declaration, which is therefore the order of the splits on all ranks.
Groups::Groups(HostComm& world_comm, const ParallelGrid& grid, const GroupsOptions& options)
    : world(make(world_comm, grid, GroupKind::World, options)),
      pipeline(make(world_comm, grid, GroupKind::Pipeline, options)),
      data(make(world_comm, grid, GroupKind::Data, options)),
      context(make(world_comm, grid, GroupKind::Context, options)),
      loss(make(world_comm, grid, GroupKind::Loss, options)),
      expert(make(world_comm, grid, GroupKind::Expert, options)),
      expert_data(make(world_comm, grid, GroupKind::ExpertData, options)),
      model(make(world_comm, grid, GroupKind::Model, options)) {}

Group Groups::make(HostComm& world_comm, const ParallelGrid& grid, GroupKind kind, const GroupsOptions& options) {
  const std::string name(to_string(kind));
  const int place = grid.group_rank(kind, world_comm.rank());
  std::unique_ptr<HostComm> host = world_comm.split(grid.group_index(kind, world_comm.rank()), place, name);
  LH_CHECK(host->rank() == place && host->size() == grid.group_size(kind), "group {}: rank {} of {}, the grid says {} of {}", name,
           host->rank(), host->size(), place, grid.group_size(kind));
  const DeviceCommOptions device_options{.name = name, .reduce_order = options.reduce_order, .journal = options.journal};
  DeviceComm* host_data = nullptr;
  if (options.data_plane != DataPlane::Mpi) {
    DeviceCommOptions host_options = device_options;
    host_options.name += "/host_data";
    devices_.push_back(host->make_cpu_device_comm(std::move(host_options)));
    host_data = devices_.back().get();
  }
  devices_.push_back(make_device_comm(*host, kind, device_options, options));
  DeviceComm& device = *devices_.back();
  hosts_.push_back(std::move(host));
  HostComm& control = *hosts_.back();
  return {.name = name, .rank = control.rank(), .size = control.size(), .host = control, .device = device,
          .host_data = host_data == nullptr ? device : *host_data};
}

void Groups::finish() {
  for (const std::unique_ptr<DeviceComm>& device : devices_) {
    device->finish();
  }
}

const Group& Groups::of(GroupKind kind) const {
  switch (kind) {
    case GroupKind::World: return world;
    case GroupKind::Pipeline: return pipeline;
    case GroupKind::Data: return data;
    case GroupKind::Context: return context;
    case GroupKind::Loss: return loss;
    case GroupKind::Expert: return expert;
    case GroupKind::ExpertData: return expert_data;
    case GroupKind::Model: return model;
  }
  throw InternalError("there is no group kind {}", static_cast<int>(kind));
}

}  // namespace longhaul
