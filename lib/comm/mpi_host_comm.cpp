// See mpi_host_comm.h.
#include "comm/mpi_host_comm.h"

#include <algorithm>
#include <numeric>

#include "base/cast.h"
#include "comm/loopback_device_comm.h"
#include "comm/mpi_check.h"
#include "comm/mpi_device_comm.h"

namespace longhaul {

namespace {

constexpr int64_t kMaxMessageBytes = int64_t{1} << 30;

// The lowest rank of `comm` that shares this process's memory.
int lowest_rank_on_node(MPI_Comm comm) {
  int rank = 0;
  LH_MPI(MPI_Comm_rank(comm, &rank));
  MPI_Comm shared = MPI_COMM_NULL;
  LH_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &shared));
  const MpiComm node(shared);
  int lowest = rank;
  LH_MPI(MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, node.get()));
  return lowest;
}

}  // namespace

std::unique_ptr<MpiHostComm> MpiHostComm::duplicate(MPI_Comm comm, std::string name, CommJournal* journal) {
  MpiComm copy = MpiComm::duplicate(comm);
  LH_MPI(MPI_Comm_set_errhandler(copy.get(), MPI_ERRORS_RETURN));
  const int node = lowest_rank_on_node(copy.get());
  return adopt(std::move(copy), node, std::move(name), journal);
}

std::unique_ptr<MpiHostComm> MpiHostComm::adopt(MpiComm comm, int node, std::string name, CommJournal* journal) {
  Place place;
  LH_MPI(MPI_Comm_rank(comm.get(), &place.rank));
  LH_MPI(MPI_Comm_size(comm.get(), &place.size));
  std::vector<int> nodes(static_cast<size_t>(place.size));
  LH_MPI(MPI_Allgather(&node, 1, MPI_INT, nodes.data(), 1, MPI_INT, comm.get()));
  place.local_size = narrow<int>(std::count(nodes.begin(), nodes.end(), node));
  place.local_rank = narrow<int>(std::count(nodes.begin(), nodes.begin() + place.rank, node));
  return std::unique_ptr<MpiHostComm>(new MpiHostComm(std::move(comm), place, node, std::move(name), journal));
}

std::unique_ptr<DeviceComm> MpiHostComm::make_cpu_device_comm(DeviceCommOptions options) {
  if (size() == 1) {
    return std::make_unique<LoopbackDeviceComm>(std::move(options));
  }
  return std::make_unique<MpiDeviceComm>(comm_.get(), std::move(options));
}

void MpiHostComm::do_barrier() { LH_MPI(MPI_Barrier(comm_.get())); }

void MpiHostComm::do_broadcast(std::span<std::byte> data, int root) {
  const auto bytes = narrow<int64_t>(data.size());
  for (int64_t done = 0; done < bytes; done += kMaxMessageBytes) {
    const int piece = narrow<int>(std::min(bytes - done, kMaxMessageBytes));
    LH_MPI(MPI_Bcast(data.data() + done, piece, MPI_BYTE, root, comm_.get()));
  }
}

std::vector<HostComm::Bytes> MpiHostComm::do_all_gather(std::span<const std::byte> mine) {
  const auto ranks = static_cast<size_t>(size());
  const int64_t my_bytes = narrow<int64_t>(mine.size());
  std::vector<int64_t> bytes(ranks);
  LH_MPI(MPI_Allgather(&my_bytes, 1, MPI_INT64_T, bytes.data(), 1, MPI_INT64_T, comm_.get()));
  const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  // Every rank sees the same total, so all of them refuse together.
  LH_CHECK(total <= kMaxMessageBytes, "the control plane gathers at most {} bytes, got {}; use DeviceComm", kMaxMessageBytes, total);
  std::vector<int> counts(ranks);
  std::vector<int> offsets(ranks);
  int offset = 0;
  for (size_t r = 0; r < ranks; ++r) {
    counts[r] = narrow<int>(bytes[r]);
    offsets[r] = offset;
    offset += counts[r];
  }
  Bytes all(static_cast<size_t>(total));
  LH_MPI(MPI_Allgatherv(mine.data(), narrow<int>(my_bytes), MPI_BYTE, all.data(), counts.data(), offsets.data(), MPI_BYTE,
                        comm_.get()));
  std::vector<Bytes> parts;
  for (size_t r = 0; r < ranks; ++r) {
    const auto first = all.begin() + offsets[r];
    parts.emplace_back(first, first + counts[r]);
  }
  return parts;
}

std::unique_ptr<HostComm> MpiHostComm::do_split(int color, int key, std::string child_name) {
  MPI_Comm child = MPI_COMM_NULL;
  LH_MPI(MPI_Comm_split(comm_.get(), color, key, &child));
  return adopt(MpiComm(child), node_, std::move(child_name), journal());
}

void MpiHostComm::do_send(std::span<const std::byte> data, int peer, int tag) {
  MpiRequests requests(comm_.get(), kMaxMessageBytes);
  requests.isend(data.data(), narrow<int64_t>(data.size()), peer, tag);
  requests.wait();
}

void MpiHostComm::do_recv(std::span<std::byte> data, int peer, int tag) {
  MpiRequests requests(comm_.get(), kMaxMessageBytes);
  requests.irecv(data.data(), narrow<int64_t>(data.size()), peer, tag);
  requests.wait();
}

}  // namespace longhaul
