// See hdf5_handle.h.
#include "storage/hdf5_handle.h"

#include <atomic>
#include <string_view>
#include <thread>

namespace longhaul::hdf5 {

namespace {

herr_t append_entry(unsigned, const H5E_error2_t* entry, void* text_of_stack) {
  auto& text = *static_cast<std::string*>(text_of_stack);
  if (entry->desc != nullptr) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", entry->func_name == nullptr ? "?" : entry->func_name, entry->desc);
  }
  return 0;
}

// As wide as what it guards: the library's own state is one for the process.
std::atomic<std::thread::id> claimed_by;

}  // namespace

ThreadClaim::ThreadClaim() {
  LH_CHECK(claimed_by.load() != std::this_thread::get_id(), "this thread has claimed HDF5 already");
  std::thread::id nobody;
  while (!claimed_by.compare_exchange_strong(nobody, std::this_thread::get_id())) {
    claimed_by.wait(nobody);
    nobody = {};
  }
}

ThreadClaim::~ThreadClaim() {
  claimed_by = std::thread::id();
  claimed_by.notify_one();
}

void expect_no_other_claim() {
  const std::thread::id owner = claimed_by.load(std::memory_order_relaxed);
  LH_CHECK(owner == std::thread::id() || owner == std::this_thread::get_id(),
           "HDF5 is used while a checkpoint is being written in the background; finish the save first");
}

void silence_errors() noexcept {
  // After a close that failed (a full disk), HDF5 1.10 keeps the identifier of a file it has freed, and its clean-up at
  // the end of the process crashes on it. Every identifier has an owner here, so nothing is left to clean up.
  [[maybe_unused]] static const herr_t no_cleanup_at_exit = H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

std::string error_stack_text() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, append_entry, &text);
  return text;
}

void throw_failure(const char* call, std::source_location) {
  const std::string stack = error_stack_text();
  std::string_view name(call);
  name = name.substr(0, name.find('('));  // the arguments of a macro read badly
  throw CheckpointError("HDF5 {} failed: {}", name, stack.empty() ? "it gave no reason" : stack);
}

}  // namespace longhaul::hdf5
