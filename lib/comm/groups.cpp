// See groups.h.
#include "comm/groups.h"

namespace longhaul {

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
  DeviceCommOptions device_options{.name = name, .reduce_order = options.reduce_order, .journal = options.journal};
  std::unique_ptr<DeviceComm> device = options.make_device_comm ? options.make_device_comm(*host, std::move(device_options))
                                                                : host->make_cpu_device_comm(std::move(device_options));
  const Group group{.name = name, .rank = host->rank(), .size = host->size(), .host = *host, .device = *device};
  hosts_.push_back(std::move(host));
  devices_.push_back(std::move(device));
  return group;
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
