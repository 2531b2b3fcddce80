// What a run tells: metrics.jsonl for programs, log.txt for people, and the terminal. One rank writes; on the others every
// call does nothing, so callers do not ask which rank they are.
//
// On a terminal a progress bar stays below the lines. Elsewhere there are only lines, without control characters.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "metrics/progress_bar.h"
#include "metrics/terminal.h"

namespace longhaul {

class RunLog {
 public:
  enum class Role : uint8_t { Writer, Silent };

  // Nothing is written to files before open().
  explicit RunLog(Role role, Terminal terminal = standard_terminal(Env::process()));
  // Removes the bar.
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Appends to DIR/metrics.jsonl and DIR/log.txt, which are made when missing. DataError when they cannot be opened.
  void open(const std::filesystem::path& directory);

  // One object a line in metrics.jsonl, on disk when the call returns to the operating system. It should have "type".
  // Numbers that are not finite become null, text that is not UTF-8 is repaired.
  void record(const nlohmann::json& event);
  // A line in log.txt and on stdout.
  void say(const std::string& line);
  // The same for a line that reports progress; on a terminal the bar moves too.
  void progress(const std::string& line, RunProgress progress);
  // A line on stderr and in log.txt, and an event of type "warning".
  void warn(const std::string& message);

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;
  [[nodiscard]] static File append_to(const std::filesystem::path& path);
  // A full disk must not end a run that trains: the loss of a line is reported once, and the run goes on.
  void write_line(const File& file, const std::string& line);
  void remove_bar();
  void draw_bar();

  Role role_;
  Terminal terminal_;
  RunProgress progress_;     // total 0: no bar yet
  bool has_bar_ = false;  // on the terminal now
  bool has_lost_lines_ = false;
  File metrics_, log_;
};

}  // namespace longhaul
