// See terminal.h.
#include "metrics/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <filesystem>

namespace longhaul {
namespace {

bool has_launcher(const Env& env) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID"}) {
    if (env.get(name)) {
      return true;
    }
  }
  return false;
}

bool parent_has_terminal() {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", getppid()), error);
  return !error && (target.native().starts_with("/dev/pts/") || target.native().starts_with("/dev/tty"));
}

}  // namespace

Terminal standard_terminal(const Env& env) {
  Terminal terminal;
  const bool is_dumb = env.get("TERM").value_or("dumb") == "dumb";
  terminal.is_live = isatty(STDOUT_FILENO) == 1 && !is_dumb && (!has_launcher(env) || parent_has_terminal());
  terminal.has_colour = terminal.is_live && env.get("NO_COLOR").value_or("").empty();
  winsize size = {};
  if (terminal.is_live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) {
    terminal.columns = size.ws_col;
  }
  return terminal;
}

}  // namespace longhaul
