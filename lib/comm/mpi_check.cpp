// See mpi_check.h.
#include "comm/mpi_check.h"

#include <array>

#include "base/error.h"

namespace longhaul::detail {

std::string mpi_error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) {
    return fmt::format("MPI error {}", code);
  }
  return {text.data(), static_cast<size_t>(length)};
}

void throw_mpi_error(int code, std::string_view call, std::source_location where) {
  throw CommError("{} failed: {} [{}:{}]", call.substr(0, call.find('(')), mpi_error_text(code), where.file_name(), where.line());
}

}  // namespace longhaul::detail
