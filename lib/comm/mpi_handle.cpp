// See mpi_handle.h.
#include "comm/mpi_handle.h"

#include <algorithm>
#include <utility>

#include "base/cast.h"
#include "comm/mpi_check.h"

namespace longhaul {

namespace {

bool mpi_is_running() noexcept {
  int initialized = 0;
  int finalized = 0;
  return MPI_Initialized(&initialized) == MPI_SUCCESS && MPI_Finalized(&finalized) == MPI_SUCCESS && initialized != 0 &&
         finalized == 0;
}

}  // namespace

MpiComm::~MpiComm() {
  if (comm_ != MPI_COMM_NULL && mpi_is_running()) {
    MPI_Comm_free(&comm_);
  }
}

MpiComm::MpiComm(MpiComm&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}

MpiComm& MpiComm::operator=(MpiComm&& other) noexcept {
  std::swap(comm_, other.comm_);
  return *this;
}

MpiComm MpiComm::duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  LH_MPI(MPI_Comm_dup(comm, &copy));
  return MpiComm(copy);
}

MpiRequests::~MpiRequests() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] != MPI_REQUEST_NULL && mpi_is_running()) {
      if (wanted_bytes_[i] != kSend) {
        MPI_Cancel(&requests_[i]);
      }
      MPI_Request_free(&requests_[i]);
    }
  }
}

void MpiRequests::isend(const void* data, int64_t bytes, int peer, int tag) {
  for (int64_t done = 0; done < bytes;) {
    const int64_t piece = std::min(bytes - done, max_message_bytes_);
    requests_.push_back(MPI_REQUEST_NULL);
    wanted_bytes_.push_back(kSend);
    LH_MPI(MPI_Isend(static_cast<const std::byte*>(data) + done, narrow<int>(piece), MPI_BYTE, peer, tag, comm_,
                     &requests_.back()));
    done += piece;
  }
}

void MpiRequests::irecv(void* data, int64_t bytes, int peer, int tag) {
  for (int64_t done = 0; done < bytes;) {
    const int64_t piece = std::min(bytes - done, max_message_bytes_);
    requests_.push_back(MPI_REQUEST_NULL);
    wanted_bytes_.push_back(narrow<int>(piece));
    LH_MPI(MPI_Irecv(static_cast<std::byte*>(data) + done, narrow<int>(piece), MPI_BYTE, peer, tag, comm_, &requests_.back()));
    done += piece;
  }
}

void MpiRequests::wait() {
  // One by one instead of MPI_Waitall: with MPI_THREAD_MULTIPLE, that of Open MPI 4.1.4 was seen to spin for ever when a
  // request had failed before it was called (a message longer than its receive). All requests progress meanwhile.
  for (size_t i = 0; i < requests_.size(); ++i) {
    MPI_Status status;
    LH_MPI(MPI_Wait(&requests_[i], &status));
    if (wanted_bytes_[i] == kSend) {
      continue;
    }
    int got = 0;
    LH_MPI(MPI_Get_count(&status, MPI_BYTE, &got));
    if (got != wanted_bytes_[i]) {
      throw CommError("rank {} sent {} bytes where {} were wanted (tag {}); sender and receiver disagree about a shape",
                      status.MPI_SOURCE, got, wanted_bytes_[i], status.MPI_TAG);
    }
  }
  requests_.clear();
  wanted_bytes_.clear();
}

}  // namespace longhaul
