// The line at the bottom of a terminal that says how far a run is.
#pragma once

#include <cstdint>
#include <string>

namespace longhaul {

struct RunProgress {
  int64_t done = 0;   // steps
  int64_t total = 0;  // steps of the whole run
  std::string note;   // "loss 2.3140  9313 tok/s  left 4m10s"
};

enum class Colour : uint8_t { Yes, No };

// "[=========>          ]  45 %  90/200  loss 2.3140  9313 tok/s  left 4m10s", without a line end. Shows at most `columns`
// characters: first the bar gets shorter, then the note is cut. Colour codes take no columns.
[[nodiscard]] std::string progress_bar(const RunProgress& progress, int columns, Colour colour);

}  // namespace longhaul
