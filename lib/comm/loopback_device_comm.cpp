// See loopback_device_comm.h.
#include "comm/loopback_device_comm.h"

#include <algorithm>

#include "device/copy_bytes.h"

namespace longhaul {

namespace {

Place place_of(const TensorView& view) { return {.device = view.device(), .data = view.raw()}; }

class DoneTransfer final : public TransferState {
 public:
  void wait() override {}
};

class LoopbackReceive final : public TransferState {
 public:
  LoopbackReceive(Mailbox& mailbox, const TensorView& values, int tag) : mailbox_(mailbox), values_(values), tag_(tag) {}
  void wait() override {
    auto letter = mailbox_.take({.tag = tag_});
    if (!letter.has_value() || static_cast<int64_t>(letter->size()) != values_.bytes()) {
      throw CommError("recv in a group of one rank: wanted {} with tag {}, {}", values_.to_string(), tag_,
                      letter.has_value() ? fmt::format("got {} bytes", letter->size()) : "nothing was sent");
    }
    copy_bytes({.device = {}, .data = letter->data()}, place_of(values_), values_.bytes());
  }

 private:
  Mailbox& mailbox_;
  TensorView values_;
  int tag_;
};

}  // namespace

void LoopbackDeviceComm::copy_tensor(const TensorView& from, const TensorView& to) const {
  if (from.raw() == to.raw()) {
    return;
  }
  if (cuda_ == nullptr) {
    copy_bytes(place_of(from), place_of(to), from.bytes());
  } else {
    copy_bytes_async(cuda_->stream(), place_of(from), place_of(to), from.bytes());
  }
}

void LoopbackDeviceComm::do_finish() {
  if (cuda_ != nullptr) {
    cuda_->stream().synchronize();
  }
}

void LoopbackDeviceComm::do_reduce_scatter_sum(const TensorView& input, const TensorView& mine) { copy_tensor(input, mine); }

void LoopbackDeviceComm::do_all_gather(const TensorView& mine, const TensorView& all) { copy_tensor(mine, all); }

void LoopbackDeviceComm::do_all_to_all_v(const AllToAllV& op) { copy_tensor(op.send, op.recv); }

void LoopbackDeviceComm::do_all_to_all_counts(std::span<const int64_t> send_rows, std::span<int64_t> recv_rows) {
  std::copy(send_rows.begin(), send_rows.end(), recv_rows.begin());
}

std::unique_ptr<TransferState> LoopbackDeviceComm::do_isend(const TensorView& values, int, int tag) {
  std::vector<std::byte> letter(static_cast<size_t>(values.bytes()));
  copy_bytes(place_of(values), {.device = {}, .data = letter.data()}, values.bytes());  // waits for the GPU's work
  mailbox_.post({.tag = tag}, letter);
  return std::make_unique<DoneTransfer>();
}

std::unique_ptr<TransferState> LoopbackDeviceComm::do_irecv(const TensorView& values, int, int tag) {
  return std::make_unique<LoopbackReceive>(mailbox_, values, tag);
}

}  // namespace longhaul
