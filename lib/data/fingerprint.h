// A cheap identity of a file's content: its size and a hash of its first and last 64 KiB. It is stored with the data
// cursor so that a run is not resumed on other data than it was started on. An edit in the middle that keeps the size
// is not noticed; hashing terabytes at every start would cost more than it protects.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace longhaul {

struct Fingerprint {
  int64_t bytes = 0;  // of all files that make one data source
  uint64_t hash = 0;  // XXH3-64 of head and tail

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

[[nodiscard]] Fingerprint fingerprint_of(std::span<const std::byte> content);
// Of several files in a fixed order (.bin, then .idx).
[[nodiscard]] Fingerprint combine(const Fingerprint& first, const Fingerprint& second);

// "123456:0f1e2d3c4b5a6978", and back. CheckpointError when the text is not of that form.
[[nodiscard]] std::string to_string(const Fingerprint& fingerprint);
[[nodiscard]] Fingerprint parse_fingerprint(std::string_view text);

}  // namespace longhaul
