// See host_comm.h: argument checks, journal notes, and what is built from the primitives.
#include "comm/host_comm.h"

#include <algorithm>

#include "base/cast.h"

namespace longhaul {

void HostComm::expect_peer(std::string_view op, int peer) const {
  if (peer < 0 || peer >= size()) {
    throw UsageError("{} in group {}: there is no rank {} among {} ranks", op, name_, peer, size());
  }
}

void HostComm::barrier() {
  writer_.note("barrier", 0, -1, [&] { do_barrier(); });
}

void HostComm::broadcast_bytes(std::span<std::byte> data, int root) {
  expect_peer("broadcast", root);
  writer_.note("broadcast", narrow<int64_t>(data.size()), -1, [&] { do_broadcast(data, root); });
}

std::vector<HostComm::Bytes> HostComm::all_gather_bytes(std::span<const std::byte> mine) {
  std::vector<Bytes> parts;
  writer_.note("all_gather", narrow<int64_t>(mine.size()), -1, [&] { parts = do_all_gather(mine); });
  return parts;
}

std::unique_ptr<HostComm> HostComm::split(int color, int key, std::string child_name) {
  LH_CHECK(color >= 0, "the color of a split must not be negative, got {}", color);
  std::unique_ptr<HostComm> child;
  writer_.note("split", 0, -1, [&] { child = do_split(color, key, std::move(child_name)); });
  return child;
}

bool HostComm::agree(bool mine) {
  const std::vector<uint8_t> votes = all_gather_value(static_cast<uint8_t>(mine));
  return std::all_of(votes.begin(), votes.end(), [](uint8_t vote) { return vote != 0; });
}

bool HostComm::any(bool mine) { return !agree(!mine); }

void HostComm::send_bytes(std::span<const std::byte> data, int peer, int tag) {
  expect_peer("send", peer);
  LH_CHECK(tag >= 0 && tag <= kMaxTag, "a tag must be in [0, {}], got {}", kMaxTag, tag);
  writer_.note("send", narrow<int64_t>(data.size()), peer, [&] { do_send(data, peer, tag); });
}

void HostComm::recv_bytes(std::span<std::byte> data, int peer, int tag) {
  expect_peer("recv", peer);
  LH_CHECK(tag >= 0 && tag <= kMaxTag, "a tag must be in [0, {}], got {}", kMaxTag, tag);
  writer_.note("recv", narrow<int64_t>(data.size()), peer, [&] { do_recv(data, peer, tag); });
}

void HostComm::broadcast_string(std::string& text, int root) {
  auto length = narrow<int64_t>(text.size());
  broadcast_value(length, root);
  text.resize(narrow<size_t>(length));
  broadcast_bytes(std::as_writable_bytes(std::span(text)), root);
}

std::vector<std::string> HostComm::all_gather_strings(std::string_view mine) {
  std::vector<std::string> texts;
  for (const Bytes& part : all_gather_bytes(std::as_bytes(std::span(mine)))) {
    texts.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return texts;
}

}  // namespace longhaul
