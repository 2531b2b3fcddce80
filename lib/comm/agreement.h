// Errors at agreed points: when one rank fails to read a recipe or a file, all ranks throw the same error, so that every
// process ends with the same exit code, one of them prints the message, and none waits for another.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "comm/host_comm.h"

namespace longhaul {

// Also derived from by every error that rethrow_if_any throws: tells main that all ranks know, so that it may leave in
// an orderly way instead of aborting the job.
class AgreedFailure {
 public:
  AgreedFailure(int failing_rank, int own_rank) : failing_rank_(failing_rank), own_rank_(own_rank) {}
  virtual ~AgreedFailure() = default;

  // The lowest rank that failed.
  [[nodiscard]] int failing_rank() const noexcept { return failing_rank_; }
  // True on exactly one rank: the one that prints the message.
  [[nodiscard]] bool is_reported_here() const noexcept { return failing_rank_ == own_rank_; }

 private:
  int failing_rank_;
  int own_rank_;
};

// Null when the error is known to this rank alone.
[[nodiscard]] const AgreedFailure* agreed_failure(const std::exception& error) noexcept;

// Throws the error type that belongs to `kind`: RecipeError for ErrorKind::Recipe, and so on.
[[noreturn]] void throw_error(ErrorKind kind, const std::string& message);

// Collective. `mine` is this rank's exception or null. When any rank has one, all ranks throw the error of the lowest
// such rank: same type and exit code, and its message after "[rank 2] ". Exceptions which are not an Error become
// InternalError, std::bad_alloc becomes OutOfMemoryError.
void rethrow_if_any(HostComm& host, std::exception_ptr mine);

// Runs fn on every rank and agrees about its failure; returns what fn returns. fn must not communicate over `host`:
// a rank that throws would leave the others waiting inside fn.
template <class Fn>
auto run_agreed(HostComm& host, Fn&& fn) {
  using Result = std::invoke_result_t<Fn>;
  std::exception_ptr failure;
  if constexpr (std::is_void_v<Result>) {
    try {
      fn();
    } catch (...) {
      failure = std::current_exception();
    }
    rethrow_if_any(host, failure);
  } else {
    std::optional<Result> result;
    try {
      result.emplace(fn());
    } catch (...) {
      failure = std::current_exception();
    }
    rethrow_if_any(host, failure);
    return *std::move(result);
  }
}

}  // namespace longhaul
