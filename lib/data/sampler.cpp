// See sampler.h.
#include "data/sampler.h"

#include <cmath>

#include "base/cast.h"
#include "base/error.h"

namespace longhaul {

namespace {

constexpr uint64_t kRounds = 8;

// A stream of its own for each (source, epoch): 64 Philox bits, so that two of them coincide by chance only.
[[nodiscard]] RandomStream epoch_stream(uint64_t seed, int64_t source_id, int64_t epoch) {
  const RandomStream parent{.seed = seed, .stream = stream_id("data/shuffle")};
  LH_CHECK(source_id >= 0 && source_id < (int64_t{1} << 24) && epoch >= 0 && epoch < (int64_t{1} << 40),
           "source {} in epoch {} is beyond the numbering of shuffles", source_id, epoch);
  const Philox4 words = parent.words((static_cast<uint64_t>(source_id) << 40) | static_cast<uint64_t>(epoch));
  return {.seed = seed, .stream = (uint64_t{words[0]} << 32) | words[1]};
}

}  // namespace

EpochOrder::EpochOrder(Shuffle shuffle, uint64_t seed, int64_t source_id, int64_t epoch, int64_t num_documents)
    : shuffle_(shuffle), stream_(epoch_stream(seed, source_id, epoch)), num_documents_(narrow<uint64_t>(num_documents)) {
  if (num_documents_ == 0) {
    return;
  }
  rows_ = static_cast<uint64_t>(std::sqrt(static_cast<double>(num_documents_)));
  while (rows_ * rows_ < num_documents_) {
    ++rows_;  // ceil(sqrt n); the floating-point root may be off by one either way, which only changes the grid's shape
  }
  columns_ = (num_documents_ + rows_ - 1) / rows_;
}

uint64_t EpochOrder::permute_cell(uint64_t cell) const {
  uint64_t row = cell / columns_;
  uint64_t column = cell % columns_;
  for (uint64_t round = 0; round < kRounds; round += 2) {
    row = (row + stream_.below((round << 56) | column, rows_)) % rows_;
    column = (column + stream_.below(((round + 1) << 56) | row, columns_)) % columns_;
  }
  return row * columns_ + column;
}

int64_t EpochOrder::document(int64_t position) const {
  LH_CHECK(position >= 0 && static_cast<uint64_t>(position) < num_documents_, "position {} in an epoch of {} documents", position,
           num_documents_);
  if (shuffle_ == Shuffle::None) {
    return position;
  }
  auto cell = static_cast<uint64_t>(position);
  do {
    cell = permute_cell(cell);
  } while (cell >= num_documents_);
  return static_cast<int64_t>(cell);
}

}  // namespace longhaul
