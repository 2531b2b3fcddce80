// What stdout is: a terminal on which a line can be replaced, or a file, a pipe, a log.
#pragma once

#include <cstdio>

#include "base/env.h"

namespace longhaul {

struct Terminal {
  std::FILE* out = stdout;  // not owned
  bool is_live = false;     // a person watches: a progress bar may be drawn and redrawn
  bool has_colour = false;
  int columns = 80;
};

// stdout of this process. mpirun gives its ranks a terminal whatever its own output is, so under a launcher the answer is
// that of the parent process; where this cannot be found out (a rank on another host), it is no. NO_COLOR and TERM=dumb
// are respected.
[[nodiscard]] Terminal standard_terminal(const Env& env);

}  // namespace longhaul
