// See io_error.h.
#include "storage/io_error.h"

#include <cerrno>
#include <system_error>

namespace longhaul {

void throw_io_error(ErrorKind kind, const std::string& message, std::source_location where) {
  switch (kind) {
    case ErrorKind::Checkpoint: throw CheckpointError("{}", message);
    case ErrorKind::Data: throw DataError("{}", message);
    case ErrorKind::Conversion: throw ConversionError("{}", message);
    default: throw Error(kind, message, where);
  }
}

std::string describe_errno(int number) {
  const std::string text = std::generic_category().message(number);
  switch (number) {
    case ENOSPC: return text + "; free some space or write to another disk";
    case EDQUOT: return text + "; remove old files or ask for a larger quota";
    case EFBIG: return text + "; the file system or a limit (ulimit -f) refuses files of this size";
    case EROFS: return text + "; choose a directory on a writable file system";
    case EACCES:
    case EPERM: return text + "; check the owner and the permissions of the directory";
    default: return text;
  }
}

}  // namespace longhaul
