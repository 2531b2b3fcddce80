// See loopback_device_comm.h.
#include "comm/loopback_device_comm.h"

#include <algorithm>
#include <cstring>

namespace longhaul {

namespace {

// The parts may be the same memory: a rank's own part of a gathered tensor.
void copy_tensor(const TensorView& from, const TensorView& to) {
  if (from.bytes() > 0) {
    std::memmove(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
  }
}

class DoneTransfer final : public TransferState {
 public:
  void wait() override {}
};

class LoopbackReceive final : public TransferState {
 public:
  LoopbackReceive(Mailbox& mailbox, const TensorView& values, int tag) : mailbox_(mailbox), values_(values), tag_(tag) {}
  void wait() override {
    const auto letter = mailbox_.take({.tag = tag_});
    if (!letter.has_value() || static_cast<int64_t>(letter->size()) != values_.bytes()) {
      throw CommError("recv in a group of one rank: wanted {} with tag {}, {}", values_.to_string(), tag_,
                      letter.has_value() ? fmt::format("got {} bytes", letter->size()) : "nothing was sent");
    }
    std::copy(letter->begin(), letter->end(), static_cast<std::byte*>(values_.raw()));
  }

 private:
  Mailbox& mailbox_;
  TensorView values_;
  int tag_;
};

}  // namespace

void LoopbackDeviceComm::do_reduce_scatter_sum(const TensorView& input, const TensorView& mine) { copy_tensor(input, mine); }

void LoopbackDeviceComm::do_all_gather(const TensorView& mine, const TensorView& all) { copy_tensor(mine, all); }

void LoopbackDeviceComm::do_all_to_all_v(const AllToAllV& op) { copy_tensor(op.send, op.recv); }

void LoopbackDeviceComm::do_all_to_all_counts(std::span<const int64_t> send_rows, std::span<int64_t> recv_rows) {
  std::copy(send_rows.begin(), send_rows.end(), recv_rows.begin());
}

std::unique_ptr<TransferState> LoopbackDeviceComm::do_isend(const TensorView& values, int, int tag) {
  mailbox_.post({.tag = tag}, {static_cast<const std::byte*>(values.raw()), static_cast<size_t>(values.bytes())});
  return std::make_unique<DoneTransfer>();
}

std::unique_ptr<TransferState> LoopbackDeviceComm::do_irecv(const TensorView& values, int, int tag) {
  return std::make_unique<LoopbackReceive>(mailbox_, values, tag);
}

}  // namespace longhaul
