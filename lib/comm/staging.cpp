// See staging.h.
#include "comm/staging.h"

#include <algorithm>
#include <cstring>

#include "base/cast.h"
#include "device/copy_bytes.h"

namespace longhaul {

namespace {

constexpr int64_t kRounding = int64_t{64} << 10;  // so that messages of nearly the same size share blocks

std::byte* writable(const std::byte* data) { return const_cast<std::byte*>(data); }  // NOLINT: a Place is either end of a copy

}  // namespace

void Staging::copy_down(const std::byte* tensor, std::byte* host, int64_t bytes) const {
  if (bytes == 0) {
    return;
  }
  if (cuda_ == nullptr) {
    std::memcpy(host, tensor, static_cast<size_t>(bytes));
    return;
  }
  copy_bytes_async(cuda_->stream(), {.device = cuda_->device(), .data = writable(tensor)}, {.device = {}, .data = host}, bytes);
}

void Staging::copy_up(const std::byte* host, std::byte* tensor, int64_t bytes) const {
  if (bytes == 0) {
    return;
  }
  if (cuda_ == nullptr) {
    std::memcpy(tensor, host, static_cast<size_t>(bytes));
    return;
  }
  copy_bytes_async(cuda_->stream(), {.device = {}, .data = writable(host)}, {.device = cuda_->device(), .data = tensor}, bytes);
}

void Staging::wait() const {
  if (cuda_ != nullptr) {
    cuda_->stream().synchronize();
  }
}

std::byte* Staging::scratch(int64_t bytes) {
  if (scratch_.bytes() < bytes) {
    scratch_ = PinnedBuffer();  // first, so that both are never held together
    scratch_ = PinnedBuffer(device(), round_up(bytes, kRounding));
  }
  return scratch_.data();
}

PinnedBuffer Staging::take(int64_t bytes) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->bytes() >= bytes && (best == free_.end() || it->bytes() < best->bytes())) {
      best = it;
    }
  }
  if (best == free_.end()) {
    return {device(), round_up(bytes, kRounding)};
  }
  PinnedBuffer buffer = std::move(*best);
  *best = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void Staging::give_back(PinnedBuffer buffer) {
  if (buffer.bytes() > 0) {
    free_.push_back(std::move(buffer));
  }
}

}  // namespace longhaul
