// Failures of reading and writing files. The same file layer serves checkpoints and conversion, which end with different
// exit codes, so the caller says which kind of error a failure is.
#pragma once

#include <source_location>
#include <string>

#include "base/error.h"

namespace longhaul {

// Throws CheckpointError, DataError, ConversionError or, for any other kind, a plain Error of that kind.
[[noreturn]] void throw_io_error(ErrorKind kind, const std::string& message,
                                 std::source_location where = std::source_location::current());

// strerror(number) with a hint for the failures a user can do something about: a full disk, missing permission.
[[nodiscard]] std::string describe_errno(int number);

}  // namespace longhaul
