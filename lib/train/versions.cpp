// See versions.h.
#include "train/versions.h"

#include <H5public.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "comm/mpi_session.h"
#include "comm/nccl_device_comm.h"
#include "device/gpus.h"
#include "storage/hash.h"

namespace longhaul {
namespace {

std::string one_line(std::string text) { return text.substr(0, text.find_first_of(",\n")); }

nlohmann::ordered_json versions() {
  return {{"longhaul", LH_VERSION},
          {"mpi", one_line(mpi_version())},
          {"hdf5", H5_VERS_INFO},
          {"cuda", cuda_version()},
          {"nccl", nccl_version()},
          {"compiler", "g++ " __VERSION__}};
}

}  // namespace

std::string versions_text(const std::string& program) {
  std::string text = fmt::format("{} {}", program, LH_VERSION);
  const nlohmann::ordered_json all = versions();  // items() refers to it
  for (const auto& [name, value] : all.items()) {
    if (name != "longhaul") {
      text += fmt::format("\n{:<9}{}", name, value.get<std::string>());
    }
  }
  return text;
}

std::string versions_json() { return versions().dump(); }

std::string build_hash() {
  try {
    return hash_to_text(hash_file("/proc/self/exe", ErrorKind::Internal).hash);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace longhaul
