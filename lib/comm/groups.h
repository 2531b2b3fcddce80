// All groups of a layout, built once. A layer's constructor takes only the groups it uses: MoeLayer(options, groups.expert).
// What each group is for is in the table of parallel_grid.h.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/group.h"
#include "comm/parallel_grid.h"
#include "device/cuda_context.h"

namespace longhaul {

// How tensors travel: the recipe's runtime.communicator.
enum class DataPlane : uint8_t {
  Mpi,     // CPU tensors
  Staged,  // tensors on a GPU, through the host's memory; several ranks may share a GPU
  Nccl,    // tensors on a GPU, one rank a GPU
};

struct GroupsOptions {
  ReduceOrder reduce_order = ReduceOrder::Fast;
  CommJournal* journal = nullptr;
  DataPlane data_plane = DataPlane::Mpi;
  CudaContext* cuda = nullptr;  // of this rank's GPU, for Staged and Nccl; must outlive the groups
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

  // DeviceComm::finish of every group: the host waits for all communication so far, and learns of peers that failed. Called
  // where a step would wait for the stream anyway, a dead peer becomes a CommError there instead of a hang.
  void finish();

 private:
  Groups(HostComm& world_comm, const ParallelGrid& grid, const GroupsOptions& options);
  [[nodiscard]] Group make(HostComm& world_comm, const ParallelGrid& grid, GroupKind kind, const GroupsOptions& options);
};

}  // namespace longhaul
