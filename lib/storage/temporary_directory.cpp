// See temporary_directory.h.
#include "storage/temporary_directory.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "base/error.h"

namespace longhaul {

TemporaryDirectory::TemporaryDirectory() : TemporaryDirectory(std::filesystem::temp_directory_path()) {}

TemporaryDirectory::TemporaryDirectory(const std::filesystem::path& parent) {
  std::string name = (parent / "longhaul-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw InternalError("cannot create a temporary directory like {}: {}", name, std::generic_category().message(errno));
  }
  path_ = name;
}

std::filesystem::path TemporaryDirectory::fast_parent() {
  const std::filesystem::path memory = "/dev/shm";
  return ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace longhaul
