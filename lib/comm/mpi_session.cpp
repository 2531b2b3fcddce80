// See mpi_session.h.
#include "comm/mpi_session.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "comm/agreement.h"
#include "comm/launch_check.h"
#include "comm/mpi_check.h"

namespace longhaul {

MpiSession::Runtime::Runtime() {
  int provided = MPI_THREAD_SINGLE;
  LH_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
  if (provided < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw CommError("this MPI gives thread level {}, wanted MPI_THREAD_MULTIPLE ({}), which the watchdog and checkpoints in the "
                    "background need; use an MPI that was built with thread support", provided, MPI_THREAD_MULTIPLE);
  }
  LH_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
}

MpiSession::Runtime::~Runtime() { MPI_Finalize(); }

MpiSession::MpiSession(const Env& env) {
  int size = 0;
  LH_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  check_launch(env, size);
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  LH_MPI(MPI_Get_processor_name(name.data(), &length));
  host_name_.assign(name.data(), static_cast<size_t>(length));
  world_ = MpiHostComm::duplicate(MPI_COMM_WORLD, "world", &journal_);
}

void MpiSession::abort(int exit_code) noexcept {
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);  // not reached with any MPI known; MPI_Abort merely is not declared noreturn
}

int MpiSession::fail(const std::exception_ptr& failure) noexcept {
  int exit_code = static_cast<int>(ErrorKind::Internal);
  std::string message = "an exception of unknown type";
  bool all_ranks_know = world_->size() == 1;
  bool is_reported_here = true;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    message = error.what();
    if (const auto* typed = dynamic_cast<const Error*>(&error)) {
      exit_code = typed->exit_code();
    }
    if (const AgreedFailure* agreed = agreed_failure(error)) {
      all_ranks_know = true;
      is_reported_here = agreed->is_reported_here();
    }
  } catch (...) {
  }
  if (is_reported_here) {
    // What ranks agreed on names its rank already: "[rank 2] …" becomes "[rank 2 host] …".
    const std::string own = fmt::format("[rank {}] ", world_->rank());
    const std::string text = message.starts_with(own) ? message.substr(own.size()) : message;
    fmt::print(stderr, "[rank {} {}] {}\n", world_->rank(), host_name_, text);
  }
  if (!all_ranks_know) {
    abort(exit_code);
  }
  return exit_code;
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  LH_MPI(MPI_Get_library_version(text.data(), &length));
  std::string version(text.data(), static_cast<size_t>(length));
  // Open MPI goes on with the package and the date; the first part names the version.
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace longhaul
