// See diagnostics.h.
#include "config/diagnostics.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "config/text_checks.h"

namespace longhaul::config {

namespace {

std::string on_one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return out;
}

}  // namespace

std::string Problem::text() const {
  constexpr int64_t kMaxKeyBytes = 160;
  std::string out = file;
  if (line > 0) {
    out += fmt::format("{}{}:{}", out.empty() ? "" : ":", line, column);
  }
  for (const std::string& part : {shorten(key, kMaxKeyBytes), message}) {
    if (!part.empty()) {
      out += out.empty() ? "" : ": ";
      out += part;
    }
  }
  return on_one_line(out);
}

void Diagnostics::attach(SourceMap map) { map_ = std::move(map); }

void Diagnostics::add(std::string_view key, std::string message) {
  const Position position = map_.nearest(key);
  add(Problem{.file = map_.source_name(position),
              .line = position.line,
              .column = position.column,
              .key = std::string(key),
              .message = std::move(message)});
}

void Diagnostics::add(Problem problem) {
  if (count_ >= kMaxKept) {
    ++count_;
    return;
  }
  if (seen_.insert(problem.text()).second) {
    ++count_;
    problems_.push_back(std::move(problem));
  }
}

bool Diagnostics::has(std::string_view key) const {
  return std::ranges::any_of(problems_, [&](const Problem& problem) {
    return problem.key.starts_with(key) && (problem.key.size() == key.size() || problem.key[key.size()] == '.');
  });
}

std::string Diagnostics::text() const {
  // Files in the order in which they first had a problem; what has no line (an override) after all files.
  std::map<std::string_view, int64_t> file_rank;
  for (const Problem& problem : problems_) {
    file_rank.emplace(problem.file, static_cast<int64_t>(file_rank.size()));
  }
  std::vector<const Problem*> sorted;
  for (const Problem& problem : problems_) {
    sorted.push_back(&problem);
  }
  std::ranges::stable_sort(sorted, {}, [&](const Problem* problem) {
    return std::tuple(problem->line == 0, file_rank.at(problem->file), problem->line, problem->column);
  });
  std::string out;
  for (const Problem* problem : sorted) {
    out += out.empty() ? "" : "\n";
    out += problem->text();
  }
  if (count_ > kMaxKept) {
    out += fmt::format("\n... and {} more problems", count_ - kMaxKept);
  }
  return out;
}

void Diagnostics::throw_if_any() const {
  if (!empty()) {
    throw RecipeError("{}", text());
  }
}

}  // namespace longhaul::config
