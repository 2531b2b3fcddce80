// See signals.h. A signal handler can reach nothing but static memory: the flag below is the one exception to the rule
// against global state.
#include "train/signals.h"

#include "base/error.h"

namespace longhaul {
namespace {

volatile std::sig_atomic_t arrived_signal = 0;

void note_signal(int number) { arrived_signal = number; }

int number_of(SignalName name) {
  switch (name) {
    case SignalName::Usr1: return SIGUSR1;
    case SignalName::Usr2: return SIGUSR2;
    case SignalName::Term: return SIGTERM;
    case SignalName::Hup: return SIGHUP;
    case SignalName::Int: return SIGINT;
  }
  return 0;
}

}  // namespace

SignalFlag::SignalFlag(const std::vector<SignalName>& signals) {
  arrived_signal = 0;
  for (const SignalName name : signals) {
    struct sigaction action = {};
    action.sa_handler = note_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    Previous previous{.number = number_of(name), .action = {}};
    LH_CHECK(sigaction(previous.number, &action, &previous.action) == 0, "signal {} cannot be handled", previous.number);
    previous_.push_back(previous);
  }
}

SignalFlag::~SignalFlag() {
  for (const Previous& previous : previous_) {
    sigaction(previous.number, &previous.action, nullptr);
  }
}

int SignalFlag::arrived() const noexcept { return arrived_signal; }

}  // namespace longhaul
