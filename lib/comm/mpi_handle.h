// Owners of MPI's handles: a communicator, and a set of requests that is waited for or abandoned.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

namespace longhaul {

class MpiComm {
 public:
  MpiComm() = default;
  explicit MpiComm(MPI_Comm owned) noexcept : comm_(owned) {}
  ~MpiComm();
  MpiComm(MpiComm&& other) noexcept;
  MpiComm& operator=(MpiComm&& other) noexcept;
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  // Collective over `comm`: the same ranks, separate messages.
  [[nodiscard]] static MpiComm duplicate(MPI_Comm comm);

  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

// Messages under way on one communicator, each cut into pieces of at most max_message_bytes. Pieces share a tag; MPI
// keeps their order.
class MpiRequests {
 public:
  MpiRequests(MPI_Comm comm, int64_t max_message_bytes) : comm_(comm), max_message_bytes_(max_message_bytes) {}
  // Cancels receives and lets go of sends without blocking; see pending_transfer.h.
  ~MpiRequests();
  MpiRequests(const MpiRequests&) = delete;
  MpiRequests& operator=(const MpiRequests&) = delete;

  // Nothing is sent for zero bytes: both sides know the length.
  void isend(const void* data, int64_t bytes, int peer, int tag);
  void irecv(void* data, int64_t bytes, int peer, int tag);
  // Throws CommError when a message fails, is longer or is shorter than what was asked for.
  void wait();

 private:
  static constexpr int kSend = -1;

  MPI_Comm comm_;
  int64_t max_message_bytes_;
  std::vector<MPI_Request> requests_;
  std::vector<int> wanted_bytes_;  // of a receive; kSend for a send
};

}  // namespace longhaul
