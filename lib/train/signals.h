// Signals that ask the run to save and leave. The handler only sets a flag; the trainer looks at it at the step's edge.
#pragma once

#include <csignal>
#include <vector>

#include "train/run_options.h"

namespace longhaul {

// Installs handlers for its life, and restores what was there before. One at a time in a process.
class SignalFlag {
 public:
  explicit SignalFlag(const std::vector<SignalName>& signals);
  ~SignalFlag();
  SignalFlag(const SignalFlag&) = delete;
  SignalFlag& operator=(const SignalFlag&) = delete;

  // The number of the last signal that arrived, 0 for none.
  [[nodiscard]] int arrived() const noexcept;

 private:
  struct Previous {
    int number;
    struct sigaction action;
  };
  std::vector<Previous> previous_;
};

}  // namespace longhaul
