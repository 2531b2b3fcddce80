// See corpus_split.h.
#include "data/corpus_split.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/sampler.h"

namespace longhaul {

namespace {
// Fixed: the same corpus is split the same way on every machine, and apart from any training seed.
constexpr uint64_t kSplitSeed = 0x10f6'4a01;

[[nodiscard]] bool is_inside_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) == 0x80u; }
}  // namespace

CorpusSplit split_corpus(std::span<const int64_t> document_bytes, double fraction) {
  LH_CHECK(fraction > 0.0 && fraction <= 0.5, "a validation fraction of {}", fraction);
  const auto documents = static_cast<int64_t>(document_bytes.size());
  const auto total = static_cast<double>(std::accumulate(document_bytes.begin(), document_bytes.end(), int64_t{0}));
  const double wanted = fraction * total;
  CorpusSplit split{.is_validation = std::vector<bool>(document_bytes.size(), false)};
  const EpochOrder order(Shuffle::Documents, kSplitSeed, 0, 0, documents);
  double held_out = 0.0;
  for (int64_t i = 0; i < documents && held_out < wanted; ++i) {
    const auto document = static_cast<size_t>(order.document(i));
    const auto bytes = static_cast<double>(document_bytes[document]);
    if (held_out + bytes <= 1.5 * wanted) {
      split.is_validation[document] = true;
      held_out += bytes;
    }
  }
  if (held_out >= 0.5 * wanted && held_out > 0.0) {
    return split;
  }
  // Every document that was passed over is longer than `wanted`, so the longest can be cut.
  std::fill(split.is_validation.begin(), split.is_validation.end(), false);
  split.cut_document = std::max_element(document_bytes.begin(), document_bytes.end()) - document_bytes.begin();
  split.cut_bytes = std::max<int64_t>(1, static_cast<int64_t>(wanted));
  return split;
}

int64_t find_cut(std::string_view text, int64_t tail_bytes) {
  const auto size = static_cast<int64_t>(text.size());
  if (size < 2) {
    throw DataError("a corpus of {} bytes is too small to hold out a part for validation", size);
  }
  const int64_t earliest = std::clamp<int64_t>(size - tail_bytes, 1, size - 1);
  const int64_t latest = std::clamp<int64_t>(size - tail_bytes / 2, earliest, size - 1);
  // A boundary may begin before `earliest` and end in the window; the cut is after it.
  const std::string_view window = text.substr(0, static_cast<size_t>(latest));
  for (const std::string_view boundary : {std::string_view("\n\n"), std::string_view("\n")}) {
    const auto from = std::max<int64_t>(0, earliest - static_cast<int64_t>(boundary.size()));
    const size_t found = window.find(boundary, static_cast<size_t>(from));
    if (found != std::string_view::npos) {
      return static_cast<int64_t>(found + boundary.size());
    }
  }
  int64_t cut = earliest;
  while (cut < size - 1 && is_inside_character(text[static_cast<size_t>(cut)])) {
    ++cut;
  }
  return cut;
}

}  // namespace longhaul
