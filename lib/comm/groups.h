// All groups of a layout, built once. A layer's constructor takes only the groups it uses: MoeLayer(options, groups.expert).
// What each group is for is in the table of parallel_grid.h.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/group.h"
#include "comm/parallel_grid.h"

namespace longhaul {

struct GroupsOptions {
  ReduceOrder reduce_order = ReduceOrder::Fast;
  CommJournal* journal = nullptr;
  // Makes the data plane of a group; called once a group, in the same order on all ranks. Empty: CPU tensors.
  std::function<std::unique_ptr<DeviceComm>(HostComm& host, DeviceCommOptions options)> make_device_comm = {};
};

class Groups {
 private:
  // Owners come first: the handles below refer to what they hold.
  std::vector<std::unique_ptr<HostComm>> hosts_;
  std::vector<std::unique_ptr<DeviceComm>> devices_;

 public:
  // Collective over `world`, which must have grid.world_size() ranks and outlive the result.
  [[nodiscard]] static Groups create(HostComm& world, const ParallelGrid& grid, const GroupsOptions& options = {});

  Group world;
  Group pipeline;
  Group data;
  Group context;
  Group loss;         // data x context within a stage
  Group expert;
  Group expert_data;
  Group model;        // pipeline x expert: each parameter of the model once

  [[nodiscard]] const Group& of(GroupKind kind) const;

 private:
  Groups(HostComm& world_comm, const ParallelGrid& grid, const GroupsOptions& options);
  [[nodiscard]] Group make(HostComm& world_comm, const ParallelGrid& grid, GroupKind kind, const GroupsOptions& options);
};

}  // namespace longhaul
