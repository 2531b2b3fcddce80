// See together.h.
#include "checkpoint/together.h"

#include <exception>
#include <string>
#include <vector>

#include "storage/io_error.h"

namespace longhaul {

namespace {

// The exit code as one character, then the message; empty for success.
std::string outcome_of(const std::function<void()>& work) {
  const auto encode = [](ErrorKind kind, const char* message) { return std::string(1, static_cast<char>(kind)) + message; };
  try {
    work();
    return {};
  } catch (const Error& error) {
    return encode(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return encode(ErrorKind::OutOfMemory, "out of host memory");
  } catch (const std::exception& error) {
    return encode(ErrorKind::Checkpoint, error.what());
  }
}

}  // namespace

void run_together(HostComm& comm, std::string_view action, const std::function<void()>& work) {
  const std::vector<std::string> outcomes = comm.all_gather_strings(outcome_of(work));
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].empty()) {
      continue;
    }
    const auto kind = static_cast<ErrorKind>(outcomes[rank].front());
    const std::string place = outcomes.size() > 1 ? fmt::format(" on rank {}", rank) : "";
    throw_io_error(kind, fmt::format("{} failed{}: {}", action, place, outcomes[rank].substr(1)));
  }
}

}  // namespace longhaul
