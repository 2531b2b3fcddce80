// The data of a validation pass: a fixed number of sequences from the start of the validation sources, in stored order,
// the same every time, whatever the training cursor or the layout is. Sources share the tokens by weight; one that ends
// early leaves its share to the others. Nothing is read twice: what is missing to a whole sequence at a source's end is
// padding, which has no target and is a segment of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/data_loader.h"
#include "data/data_state.h"
#include "data/packing.h"

namespace longhaul {

class ValidationReader {
 public:
  // Covers `tokens` rounded up to whole sequences, or all there is when that is less. The errors of DataLoader.
  ValidationReader(std::vector<DataSource> sources, int64_t sequence_length, int64_t tokens);

  [[nodiscard]] int64_t num_sequences() const noexcept { return static_cast<int64_t>(plans_.size()); }
  // Targets of all sequences together: what a mean loss divides by.
  [[nodiscard]] int64_t num_targets() const noexcept { return counters_.targets; }
  // used + dropped is what the sources hold: dropped are the tokens beyond the limit.
  [[nodiscard]] const DataCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] std::span<const SequencePlan> plans() const noexcept { return plans_; }

  // Sequence `index`; from num_sequences() on, a sequence of nothing but padding, for ranks without a share.
  [[nodiscard]] Sequence read(int64_t index) const;

 private:
  std::vector<DataSource> sources_;
  int64_t sequence_length_;
  std::vector<SequencePlan> plans_;
  DataCounters counters_;
};

}  // namespace longhaul
