// Streams and events of a GPU as owners and views. A stream is always named: there is no default stream, and a view
// cannot be made from nothing. No CUDA headers; without the CUDA backend the constructors throw DeviceError.
#pragma once

#include <cstddef>
#include <utility>

#include "device/device.h"

struct CUstream_st;
struct CUevent_st;

namespace longhaul {

class CudaEvent;

// A stream that somebody else owns. Passed by value.
class StreamView {
 public:
  explicit StreamView(CUstream_st* handle) noexcept : handle_(handle) {}
  explicit StreamView(std::nullptr_t) = delete;

  [[nodiscard]] CUstream_st* handle() const noexcept { return handle_; }
  // The host waits for all work so far. DeviceError when some of it failed.
  void synchronize() const;
  // Later work on this stream waits for what `event` recorded.
  void wait(const CudaEvent& event) const;

 private:
  CUstream_st* handle_;
};

class CudaStream {
 public:
  // Does not synchronise with the default stream.
  explicit CudaStream(Device device);
  ~CudaStream();
  CudaStream(CudaStream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudaStream& operator=(CudaStream&&) = delete;
  CudaStream(const CudaStream&) = delete;

  [[nodiscard]] StreamView view() const noexcept { return StreamView(handle_); }

 private:
  CUstream_st* handle_ = nullptr;
};

// A point in a stream's work. Without timing, which makes waiting cheaper.
class CudaEvent {
 public:
  explicit CudaEvent(Device device);
  ~CudaEvent();
  CudaEvent(CudaEvent&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&&) = delete;
  CudaEvent(const CudaEvent&) = delete;

  void record(StreamView stream);
  [[nodiscard]] bool is_done() const;
  void synchronize() const;
  [[nodiscard]] CUevent_st* handle() const noexcept { return handle_; }

 private:
  CUevent_st* handle_ = nullptr;
};

}  // namespace longhaul
