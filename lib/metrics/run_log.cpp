// See run_log.h.
#include "metrics/run_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace longhaul {

RunLog::RunLog(Role role) : role_(role) {}

void RunLog::open(const std::filesystem::path& directory) {
  if (role_ == Role::Silent) {
    return;
  }
  metrics_ = append_to(directory / "metrics.jsonl");
  log_ = append_to(directory / "log.txt");
}

RunLog::File RunLog::append_to(const std::filesystem::path& path) {
  File file(std::fopen(path.c_str(), "a"));
  if (!file) {
    throw DataError("{}: cannot be opened for writing: {}; check the directory's permissions and the disk's space", path.string(),
                    std::strerror(errno));
  }
  return file;
}

void RunLog::record(const nlohmann::json& event) {
  if (metrics_) {
    fmt::print(metrics_.get(), "{}\n", event.dump());
    std::fflush(metrics_.get());
  }
}

void RunLog::say(const std::string& line) {
  if (role_ == Role::Silent) {
    return;
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
  if (log_) {
    fmt::print(log_.get(), "{}\n", line);
    std::fflush(log_.get());
  }
}

void RunLog::warn(const std::string& message) {
  if (role_ == Role::Silent) {
    return;
  }
  fmt::print(stderr, "warning: {}\n", message);
  if (log_) {
    fmt::print(log_.get(), "warning: {}\n", message);
    std::fflush(log_.get());
  }
  record({{"type", "warning"}, {"message", message}});
}

}  // namespace longhaul
