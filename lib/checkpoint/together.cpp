// See together.h.
#include "checkpoint/together.h"

#include <filesystem>

#include "comm/agreement.h"

namespace longhaul {

void run_together(HostComm& comm, std::string_view action, const std::function<void()>& work) {
  run_agreed(comm, [&] {
    try {
      work();
    } catch (Error& error) {
      error.add_context(action);
      throw;
    } catch (const std::filesystem::filesystem_error& error) {
      throw CheckpointError("{} failed: {}", action, error.what());
    }
  });
}

}  // namespace longhaul
