// What a run tells: metrics.jsonl for programs, log.txt for people, and the terminal. One rank writes; on the others every
// call does nothing, so callers do not ask which rank they are.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace longhaul {

class RunLog {
 public:
  enum class Role : uint8_t { Writer, Silent };

  // Nothing is written before open().
  explicit RunLog(Role role);
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Appends to DIR/metrics.jsonl and DIR/log.txt, which are made when missing. DataError when they cannot be written.
  void open(const std::filesystem::path& directory);

  // One object a line in metrics.jsonl, on disk when the call returns to the operating system. It should have "type".
  void record(const nlohmann::json& event);
  // A line in log.txt and on stdout. Never one that overwrites another: mpirun gives its ranks a terminal whatever its own
  // output is, so a log file would be full of control characters.
  void say(const std::string& line);
  // A line on stderr and in log.txt, and an event of type "warning".
  void warn(const std::string& message);

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;
  [[nodiscard]] static File append_to(const std::filesystem::path& path);

  Role role_;
  File metrics_, log_;
};

}  // namespace longhaul
