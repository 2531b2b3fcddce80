// A small buffer on the host through which strided tensors and tensors on a device pass, part by part, so that a
// checkpoint of any size needs a fixed amount of memory. Parts that are contiguous on the CPU already are used in place.
#pragma once

#include "base/cast.h"
#include "checkpoint/piece.h"
#include "tensor/host_copy.h"
#include "tensor/tensor.h"

namespace longhaul {

class Staging {
 public:
  static constexpr int64_t kBytes = 8 << 20;

  explicit Staging(const DeviceTransfer& copy) : copy_(copy) {}

  // A contiguous CPU view of the part's values, valid until the next call.
  [[nodiscard]] TensorView to_host(const TensorView& part) {
    if (is_direct(part)) {
      return part;
    }
    const TensorView host = buffer_for(part);
    transfer(part, host);
    return host;
  }

  // Into a contiguous CPU view of the same type and shape.
  void copy_to_host(const TensorView& part, const TensorView& host) const { transfer(part, host); }

  // A contiguous CPU view with what `source` gives for the part, which begins at element `first`; valid until the next call.
  [[nodiscard]] TensorView fill_from(const PieceSource& source, int64_t first, const TensorView& part) {
    const TensorView host = buffer_for(part);
    source(first, host);
    return host;
  }

  // A contiguous CPU view to fill, and then to hand to from_host for the same part.
  [[nodiscard]] TensorView target_for(const TensorView& part) { return is_direct(part) ? part : buffer_for(part); }
  void from_host(const TensorView& host, const TensorView& part) {
    if (!is_direct(part)) {
      transfer(host, part);
    }
  }

 private:
  [[nodiscard]] static bool is_direct(const TensorView& part) {
    return part.device().kind == DeviceKind::Cpu && part.is_contiguous();
  }

  // Elements are at most 8 bytes, so a part, which holds at least one, always fits.
  [[nodiscard]] TensorView buffer_for(const TensorView& part) {
    LH_CHECK(part.bytes() <= kBytes, "a part of {} bytes does not fit into the staging buffer", part.bytes());
    if (!buffer_.view().is_present()) {
      buffer_ = Tensor(DType::U8, {kBytes});
    }
    return {buffer_.view().raw(), part.dtype(), part.shape()};
  }

  void transfer(const TensorView& from, const TensorView& to) const {
    if (from.device().kind == DeviceKind::Cpu && to.device().kind == DeviceKind::Cpu) {
      copy_strided(from, to);
      return;
    }
    if (copy_) {
      copy_(from, to);
      return;
    }
    copy_between(from, to);
  }

  DeviceTransfer copy_;
  Tensor buffer_;
};

}  // namespace longhaul
