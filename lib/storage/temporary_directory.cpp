// See temporary_directory.h.
#include "storage/temporary_directory.h"

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "base/error.h"

namespace longhaul {

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "longhaul-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw InternalError("cannot create a temporary directory like {}: {}", name, std::generic_category().message(errno));
  }
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace longhaul
