// HostComm over MPI. Owns a communicator of its own, so its messages cannot meet those of anyone else.
#pragma once

#include <memory>
#include <string>

#include "comm/host_comm.h"
#include "comm/mpi_handle.h"

namespace longhaul {

class MpiHostComm final : public HostComm {
 public:
  // Duplicates `comm` (collective over it).
  [[nodiscard]] static std::unique_ptr<MpiHostComm> duplicate(MPI_Comm comm, std::string name, CommJournal* journal);

  [[nodiscard]] MPI_Comm mpi() const noexcept { return comm_.get(); }
  [[nodiscard]] std::unique_ptr<DeviceComm> make_cpu_device_comm(DeviceCommOptions options) override;

 private:
  MpiHostComm(MpiComm comm, const Place& place, int node, std::string name, CommJournal* journal)
      : HostComm(place, std::move(name), journal), comm_(std::move(comm)), node_(node) {}
  [[nodiscard]] static std::unique_ptr<MpiHostComm> adopt(MpiComm comm, int node, std::string name, CommJournal* journal);

  void do_barrier() override;
  void do_broadcast(std::span<std::byte> data, int root) override;
  [[nodiscard]] std::vector<Bytes> do_all_gather(std::span<const std::byte> mine) override;
  [[nodiscard]] std::unique_ptr<HostComm> do_split(int color, int key, std::string name) override;
  void do_send(std::span<const std::byte> data, int peer, int tag) override;
  void do_recv(std::span<std::byte> data, int peer, int tag) override;

  MpiComm comm_;
  int node_;  // names the node: the lowest rank on it of the communicator that was duplicated
};

}  // namespace longhaul
