// See progress_bar.h.
#include "metrics/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul {
namespace {

constexpr int64_t kShortestBar = 8, kLongestBar = 40;  // characters between the brackets

std::string bar_of(double share, int64_t width) {
  const auto full = static_cast<int64_t>(share * static_cast<double>(width));
  std::string bar(static_cast<size_t>(full), '=');
  if (full < width) {
    bar += '>';
    bar.append(static_cast<size_t>(width - full - 1), ' ');
  }
  return bar;
}

}  // namespace

std::string progress_bar(const RunProgress& progress, int columns, Colour colour) {
  const double share = progress.total > 0 ? std::clamp(static_cast<double>(progress.done) / static_cast<double>(progress.total), 0.0, 1.0) : 0.0;
  std::string text = fmt::format(" {:3.0f} %  {}/{}", 100 * share, progress.done, progress.total);
  if (!progress.note.empty()) {
    text += "  " + progress.note;
  }
  const int64_t left = columns - 2 - static_cast<int64_t>(text.size());
  const int64_t width = std::clamp(left, kShortestBar, kLongestBar);
  const int64_t room = columns - 2 - width;
  text.resize(static_cast<size_t>(std::clamp<int64_t>(room, 0, static_cast<int64_t>(text.size()))));
  const std::string bar = bar_of(share, width);
  return colour == Colour::Yes ? "\033[36m[" + bar + "]\033[0m" + text : "[" + bar + "]" + text;
}

}  // namespace longhaul
