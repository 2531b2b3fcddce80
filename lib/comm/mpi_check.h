// Turns the return codes of MPI into CommError with MPI's own text. Every call goes through LH_MPI; communicators carry
// MPI_ERRORS_RETURN (set on the world by MpiSession, inherited by all others).
#pragma once

#include <mpi.h>

#include <source_location>
#include <string>
#include <string_view>

namespace longhaul::detail {

[[nodiscard]] std::string mpi_error_text(int code);
[[noreturn]] void throw_mpi_error(int code, std::string_view call, std::source_location where);

inline void check_mpi(int code, std::string_view call, std::source_location where = std::source_location::current()) {
  if (code != MPI_SUCCESS) [[unlikely]] {
    throw_mpi_error(code, call, where);
  }
}

}  // namespace longhaul::detail

#define LH_MPI(call) ::longhaul::detail::check_mpi((call), #call)
