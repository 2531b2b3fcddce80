// The life of MPI in a process: initialised first, finalised last. Owns the world's control plane and the journal that
// all communicators write to.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "base/env.h"
#include "comm/comm_journal.h"
#include "comm/mpi_host_comm.h"

namespace longhaul {

class MpiSession {
 public:
  // Once a process. Throws RecipeError when the launcher and MPI disagree (launch_check.h), before anything else is
  // created, and CommError when MPI cannot be used from several threads.
  explicit MpiSession(const Env& env);
  ~MpiSession() = default;
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  [[nodiscard]] MpiHostComm& world() noexcept { return *world_; }
  [[nodiscard]] CommJournal& journal() noexcept { return journal_; }
  [[nodiscard]] const std::string& host_name() const noexcept { return host_name_; }

  // Ends all processes of the job with this exit code. For errors that the other ranks do not know of: finalising would
  // wait for them for ever.
  [[noreturn]] void abort(int exit_code) noexcept;
  // What main does with an exception that reached it. Prints "[rank 2 node17] message" on stderr, where it is this
  // rank's to print. Returns the exit code when all ranks have the error (agreement.h) or there is one rank only;
  // otherwise aborts the job.
  [[nodiscard]] int fail(const std::exception_ptr& failure) noexcept;

 private:
  // Initialises and finalises MPI; a member of its own so that a failing constructor also finalises.
  struct Runtime {
    Runtime();
    ~Runtime();
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;
  };

  Runtime runtime_;
  CommJournal journal_;
  std::string host_name_;
  std::unique_ptr<MpiHostComm> world_;
};

// The library's own name and version, for --version; needs no session.
[[nodiscard]] std::string mpi_version();

}  // namespace longhaul
