// See nccl_device_comm.h.
#include "comm/nccl_device_comm.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/cast.h"
#include "comm/agreement.h"
#include "comm/nccl_communicator.h"
#include "comm/staged_device_comm.h"
#include "device/buffer.h"
#include "device/copy_bytes.h"
#include "device/cuda_check.h"

namespace longhaul {

namespace {

using GpuId = std::array<char, sizeof(cudaUUID_t::bytes)>;

// Different for all GPUs of the world, on whatever node.
GpuId id_of(Device device) {
  cudaDeviceProp properties{};
  LH_CUDA(cudaGetDeviceProperties(&properties, device.index));
  GpuId id{};
  std::memcpy(id.data(), properties.uuid.bytes, id.size());
  return id;
}

// NCCL would refuse too, but with a message that names no remedy.
void require_own_gpu(HostComm& host, Device device) {
  const GpuId mine = id_of(device);
  const std::vector<GpuId> all = host.all_gather_value(mine);
  const auto first = std::find(all.begin(), all.end(), mine) - all.begin();
  std::exception_ptr failure;
  if (first < host.rank()) {
    failure = std::make_exception_ptr(
        DeviceError("ranks {} and {} of group {} use the same GPU ({} here), where NCCL needs a GPU for each rank; start as many ranks a "
                    "node as it has GPUs, or use `communicator: staged`", first, host.rank(), host.name(), to_string(device)));
  }
  rethrow_if_any(host, failure);
}

ncclDataType_t number_type(DType dtype) {
  switch (dtype) {
    case DType::F64: return ncclFloat64;
    case DType::F32: return ncclFloat32;
    case DType::I64: return ncclInt64;
    case DType::I32: return ncclInt32;
    case DType::BF16:
    case DType::U8: break;
  }
  throw InternalError("{} is not reduced", to_string(dtype));
}

std::byte* bytes_of(const TensorView& view) { return static_cast<std::byte*>(view.raw()); }

// A communicator and its stream; see the header.
struct Channel {
  Channel(const NcclApi& api, HostComm& host, Device device, const std::string& name)
      : stream(device), communicator(api, host, device, name) {}

  CudaStream stream;  // first: the communicator is destroyed while its stream exists
  NcclCommunicator communicator;
};

class NcclTransfer final : public TransferState {
 public:
  // Of what was enqueued on the channel last.
  NcclTransfer(Channel& channel, const CudaContext& cuda) : channel_(channel), compute_(cuda.stream()), done_(cuda.device()) {
    done_.record(channel.stream.view());
  }
  void wait() override {
    channel_.communicator.check_peers();
    compute_.wait(done_);
  }

 private:
  Channel& channel_;
  StreamView compute_;
  CudaEvent done_;
};

// A transfer that another communicator carries.
class HeldTransfer final : public TransferState {
 public:
  explicit HeldTransfer(PendingTransfer transfer) : transfer_(std::move(transfer)) {}
  void wait() override { transfer_.wait(); }

 private:
  PendingTransfer transfer_;
};

class NcclDeviceComm final : public DeviceComm {
 public:
  NcclDeviceComm(const NcclApi& api, HostComm& host, CudaContext& cuda, NcclChannels channels, DeviceCommOptions options);

 private:
  void do_all_reduce_sum(const TensorView& values, ReduceOrder order) override;
  void do_all_reduce_max(const TensorView& values) override;
  void do_reduce_scatter_sum(const TensorView& input, const TensorView& mine) override;
  void do_all_gather(const TensorView& mine, const TensorView& all) override;
  void do_broadcast(const TensorView& values, int root) override;
  void do_all_to_all_v(const AllToAllV& op) override;
  void do_all_to_all_counts(std::span<const int64_t> send_rows, std::span<int64_t> recv_rows) override;
  [[nodiscard]] std::unique_ptr<TransferState> do_isend(const TensorView& values, int peer, int tag) override;
  [[nodiscard]] std::unique_ptr<TransferState> do_irecv(const TensorView& values, int peer, int tag) override;
  void do_finish() override;

  // The communicator of collectives, made at the first of them, at which all ranks meet.
  [[nodiscard]] NcclCommunicator& collectives();
  // Null for pairs without one.
  [[nodiscard]] Channel* channel(int source, int target);
  void connect_neighbours();
  // The channel's stream continues from the compute stream; then `enqueue` on it.
  template <class Enqueue>
  [[nodiscard]] std::unique_ptr<TransferState> transfer_on(Channel& channel, std::string_view call, Enqueue&& enqueue);

  NcclApi api_;
  HostComm& host_;
  CudaContext& cuda_;
  StagedDeviceComm staged_;
  std::unique_ptr<NcclCommunicator> collectives_;
  std::array<std::unique_ptr<Channel>, 4> channels_;
};

NcclDeviceComm::NcclDeviceComm(const NcclApi& api, HostComm& host, CudaContext& cuda, NcclChannels channels, DeviceCommOptions comm_options)
    : DeviceComm(host.rank(), host.size(), DeviceKind::Cuda, std::move(comm_options)),
      api_(api),
      host_(host),
      cuda_(cuda),
      staged_(host.make_cpu_device_comm({.name = name()}), &cuda, {.name = name()}) {
  if (channels == NcclChannels::None) {
    return;
  }
  for (size_t i = 0; i < channels_.size(); ++i) {
    const bool is_odd = i % 2 == 1;
    if (size() > (is_odd ? 2 : 1)) {  // otherwise no pair would use it
      channels_[i] = std::make_unique<Channel>(api_, host_, cuda_.device(), name() + (i < 2 ? "/up" : "/down"));
    }
  }
  connect_neighbours();
}

Channel* NcclDeviceComm::channel(int source, int target) {
  const int distance = std::abs(source - target);
  if (distance != 1 && (distance == 0 || distance != size() - 1)) {
    return nullptr;
  }
  return channels_[static_cast<size_t>((source < target ? 0 : 2) + std::min(source, target) % 2)].get();
}

void NcclDeviceComm::connect_neighbours() {
  const Buffer memory(cuda_.device(), 2);
  const int next = (rank() + 1) % size();
  const int previous = (rank() + size() - 1) % size();
  for (const std::unique_ptr<Channel>& at : channels_) {
    if (at == nullptr) {
      continue;
    }
    NcclCommunicator& communicator = at->communicator;
    const auto to_peer = [&](int peer) {
      if (channel(rank(), peer) == at.get()) {
        communicator.check(api_.send(memory.data(), 1, ncclUint8, peer, communicator.get(), at->stream.view().handle()), "ncclSend");
      }
      if (channel(peer, rank()) == at.get()) {
        communicator.check(api_.recv(memory.data() + 1, 1, ncclUint8, peer, communicator.get(), at->stream.view().handle()), "ncclRecv");
      }
    };
    communicator.check(api_.group_start(), "ncclGroupStart");
    to_peer(next);
    if (previous != next) {
      to_peer(previous);
    }
    communicator.check(api_.group_end(), "ncclGroupEnd");
    at->stream.view().synchronize();
  }
}

NcclCommunicator& NcclDeviceComm::collectives() {
  if (collectives_ == nullptr) {
    collectives_ = std::make_unique<NcclCommunicator>(api_, host_, cuda_.device(), name());
  }
  collectives_->check_peers();
  return *collectives_;
}

void NcclDeviceComm::do_all_reduce_sum(const TensorView& values, ReduceOrder) {
  NcclCommunicator& c = collectives();
  c.check(api_.all_reduce(values.raw(), values.raw(), narrow<size_t>(values.numel()), number_type(values.dtype()), ncclSum, c.get(),
                          cuda_.stream().handle()), "ncclAllReduce");
}

void NcclDeviceComm::do_all_reduce_max(const TensorView& values) {
  if (values.dtype() == DType::F32 || values.dtype() == DType::F64) {
    staged_.all_reduce_max(values);
    return;
  }
  NcclCommunicator& c = collectives();
  c.check(api_.all_reduce(values.raw(), values.raw(), narrow<size_t>(values.numel()), number_type(values.dtype()), ncclMax, c.get(),
                          cuda_.stream().handle()), "ncclAllReduce");
}

void NcclDeviceComm::do_reduce_scatter_sum(const TensorView& input, const TensorView& mine) {
  NcclCommunicator& c = collectives();
  c.check(api_.reduce_scatter(input.raw(), mine.raw(), narrow<size_t>(mine.numel()), number_type(mine.dtype()), ncclSum, c.get(),
                              cuda_.stream().handle()), "ncclReduceScatter");
}

void NcclDeviceComm::do_all_gather(const TensorView& mine, const TensorView& all) {
  NcclCommunicator& c = collectives();
  c.check(api_.all_gather(mine.raw(), all.raw(), narrow<size_t>(mine.bytes()), ncclUint8, c.get(), cuda_.stream().handle()),
          "ncclAllGather");
}

void NcclDeviceComm::do_broadcast(const TensorView& values, int root) {
  NcclCommunicator& c = collectives();
  c.check(api_.broadcast(values.raw(), values.raw(), narrow<size_t>(values.bytes()), ncclUint8, root, c.get(), cuda_.stream().handle()),
          "ncclBroadcast");
}

void NcclDeviceComm::do_all_to_all_v(const AllToAllV& op) {
  NcclCommunicator& c = collectives();
  int64_t row_bytes = size_of(op.send.dtype());
  for (int d = 1; d < op.send.rank(); ++d) {
    row_bytes *= op.send.size(d);
  }
  std::byte* source = bytes_of(op.send);
  std::byte* target = bytes_of(op.recv);
  CUstream_st* const stream = cuda_.stream().handle();
  // One group: NCCL moves all of them together. A pair knows its counts, so zero rows need no message.
  c.check(api_.group_start(), "ncclGroupStart");
  for (int peer = 0; peer < size(); ++peer) {
    const int64_t out = op.send_rows[static_cast<size_t>(peer)] * row_bytes;
    const int64_t in = op.recv_rows[static_cast<size_t>(peer)] * row_bytes;
    if (peer == rank()) {
      copy_bytes_async(cuda_.stream(), {cuda_.device(), source}, {cuda_.device(), target}, out);
    } else {
      if (out > 0) {
        c.check(api_.send(source, narrow<size_t>(out), ncclUint8, peer, c.get(), stream), "ncclSend");
      }
      if (in > 0) {
        c.check(api_.recv(target, narrow<size_t>(in), ncclUint8, peer, c.get(), stream), "ncclRecv");
      }
    }
    source += out;
    target += in;
  }
  c.check(api_.group_end(), "ncclGroupEnd");
}

void NcclDeviceComm::do_all_to_all_counts(std::span<const int64_t> send_rows, std::span<int64_t> recv_rows) {
  staged_.all_to_all_counts(send_rows, recv_rows);
}

template <class Enqueue>
std::unique_ptr<TransferState> NcclDeviceComm::transfer_on(Channel& channel, std::string_view call, Enqueue&& enqueue) {
  channel.communicator.check_peers();
  CudaEvent ready(cuda_.device());
  ready.record(cuda_.stream());
  channel.stream.view().wait(ready);
  channel.communicator.check(enqueue(channel.communicator.get(), channel.stream.view().handle()), call);
  return std::make_unique<NcclTransfer>(channel, cuda_);
}

std::unique_ptr<TransferState> NcclDeviceComm::do_isend(const TensorView& values, int peer, int tag) {
  Channel* const at = channel(rank(), peer);
  if (at == nullptr || values.bytes() == 0) {
    return std::make_unique<HeldTransfer>(staged_.isend(values, peer, tag));
  }
  return transfer_on(*at, "ncclSend", [&](ncclComm_t comm, CUstream_st* stream) {
    return api_.send(values.raw(), narrow<size_t>(values.bytes()), ncclUint8, peer, comm, stream);
  });
}

std::unique_ptr<TransferState> NcclDeviceComm::do_irecv(const TensorView& values, int peer, int tag) {
  Channel* const at = channel(peer, rank());
  if (at == nullptr || values.bytes() == 0) {
    return std::make_unique<HeldTransfer>(staged_.irecv(values, peer, tag));
  }
  return transfer_on(*at, "ncclRecv", [&](ncclComm_t comm, CUstream_st* stream) {
    return api_.recv(values.raw(), narrow<size_t>(values.bytes()), ncclUint8, peer, comm, stream);
  });
}

void NcclDeviceComm::do_finish() {
  std::vector<CudaEvent> pending;
  const auto add = [&](StreamView stream) { pending.emplace_back(cuda_.device()).record(stream); };
  add(cuda_.stream());
  for (const std::unique_ptr<Channel>& at : channels_) {
    if (at != nullptr) {
      add(at->stream.view());
    }
  }
  while (!std::all_of(pending.begin(), pending.end(), [](const CudaEvent& event) { return event.is_done(); })) {
    if (collectives_ != nullptr) {
      collectives_->check_peers();
    }
    for (const std::unique_ptr<Channel>& at : channels_) {
      if (at != nullptr) {
        at->communicator.check_peers();
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

std::unique_ptr<DeviceComm> make_nccl_device_comm(HostComm& host, CudaContext& cuda, NcclChannels channels, DeviceCommOptions options) {
  const NcclApi api = run_agreed(host, [] { return NcclApi::load(); });
  require_own_gpu(host, cuda.device());
  return std::make_unique<NcclDeviceComm>(api, host, cuda, channels, std::move(options));
}

std::string nccl_version() { return fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH); }

}  // namespace longhaul
