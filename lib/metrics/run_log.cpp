// See run_log.h.
#include "metrics/run_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace longhaul {

RunLog::RunLog(Role role, Terminal terminal) : role_(role), terminal_(terminal) {}

RunLog::~RunLog() { remove_bar(); }

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

void RunLog::write_line(const File& file, const std::string& line) {
  if (!file) {
    return;
  }
  const std::string text = line + '\n';
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() && std::fflush(file.get()) == 0;
  if (!is_written && !has_lost_lines_) {
    has_lost_lines_ = true;
    std::fprintf(stderr, "warning: a line of the log or of the metrics cannot be written: %s; training goes on without it\n", std::strerror(errno));
  }
}

void RunLog::record(const nlohmann::json& event) {
  if (role_ == Role::Writer) {
    write_line(metrics_, event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

void RunLog::say(const std::string& line) {
  if (role_ == Role::Silent) {
    return;
  }
  remove_bar();
  std::fprintf(terminal_.out, "%s\n", line.c_str());
  draw_bar();
  std::fflush(terminal_.out);
  write_line(log_, line);
}

void RunLog::progress(const std::string& line, RunProgress progress) {
  progress_ = std::move(progress);
  say(line);
}

void RunLog::warn(const std::string& message) {
  if (role_ == Role::Silent) {
    return;
  }
  remove_bar();
  std::fflush(terminal_.out);
  std::fprintf(stderr, "warning: %s\n", message.c_str());
  draw_bar();
  std::fflush(terminal_.out);
  write_line(log_, "warning: " + message);
  record({{"type", "warning"}, {"message", message}});
}

void RunLog::remove_bar() {
  if (has_bar_) {
    std::fputs("\r\033[K", terminal_.out);
    std::fflush(terminal_.out);
    has_bar_ = false;
  }
}

void RunLog::draw_bar() {
  // The last column stays free: terminals wrap there.
  if (terminal_.is_live && progress_.total > 0 && progress_.done < progress_.total) {
    std::fputs(progress_bar(progress_, terminal_.columns - 1, terminal_.has_colour ? Colour::Yes : Colour::No).c_str(), terminal_.out);
    has_bar_ = true;
  }
}

}  // namespace longhaul
