// HDF5 identifiers as owners, and the check around every call of its C API. HDF5's own printing to stderr is silenced;
// its error stack becomes the text of a CheckpointError instead.
#pragma once

#include <hdf5.h>

#include <source_location>
#include <string>
#include <utility>

#include "base/error.h"

namespace longhaul::hdf5 {

// Printing is a setting of each thread, so every check asks for it again; the call costs next to nothing. Also the first
// call into HDF5 of the process.
void silence_errors() noexcept;

// While one lives, HDF5 belongs to the thread that made it, and every LH_HDF5 of another thread throws InternalError: not
// every build of HDF5 is safe for threads, and where one is, a wait inside the library would hide that training stands still.
// A thread that wants to claim it too waits: ranks that are threads of one process take turns.
class ThreadClaim {
 public:
  ThreadClaim();
  ~ThreadClaim();
  ThreadClaim(const ThreadClaim&) = delete;
  ThreadClaim& operator=(const ThreadClaim&) = delete;
};
// InternalError when another thread holds a claim.
void expect_no_other_claim();

// The thread's error stack from the innermost function out, as one line. Empty when there was no error.
[[nodiscard]] std::string error_stack_text();

[[noreturn]] void throw_failure(const char* call, std::source_location where);

// Result of a call that reports failure by a negative number.
template <class Result>
Result check(Result result, const char* call, std::source_location where = std::source_location::current()) {
  if (result < 0) [[unlikely]] {
    throw_failure(call, where);
  }
  return result;
}

// Owns one identifier; Close is its H5?close function.
template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(hid_t id) noexcept : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0) {
      silence_errors();
      Close(id_);  // a failure that matters is seen by close()
    }
  }

  [[nodiscard]] hid_t id() const noexcept { return id_; }
  [[nodiscard]] bool is_open() const noexcept { return id_ >= 0; }
  // Closes now and reports failure: what was written may reach the system only here.
  void close() {
    if (id_ >= 0) {
      silence_errors();
      check(Close(std::exchange(id_, H5I_INVALID_HID)), "close");
    }
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using File = Handle<H5Fclose>;
using Group = Handle<H5Gclose>;
using Dataset = Handle<H5Dclose>;
using Dataspace = Handle<H5Sclose>;
using Datatype = Handle<H5Tclose>;
using PropertyList = Handle<H5Pclose>;
using Attribute = Handle<H5Aclose>;
using Object = Handle<H5Oclose>;

}  // namespace longhaul::hdf5

// LH_HDF5(H5Dwrite(…)): the call's result, or a CheckpointError with HDF5's explanation.
#define LH_HDF5(call) \
  ::longhaul::hdf5::check((::longhaul::hdf5::expect_no_other_claim(), ::longhaul::hdf5::silence_errors(), (call)), #call)
