// See validation_reader.h.
#include "data/validation_reader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace longhaul {

namespace {

// Weights of the sources that still have tokens; a finished source has weight 0.
[[nodiscard]] std::vector<double> remaining_weights(std::span<const DataSource> sources, std::span<const int64_t> remaining) {
  std::vector<double> weights;
  for (size_t i = 0; i < sources.size(); ++i) {
    weights.push_back(remaining[i] > 0 ? sources[i].weight : 0.0);
  }
  return weights;
}

}  // namespace

ValidationReader::ValidationReader(std::vector<DataSource> sources, int64_t sequence_length, int64_t tokens)
    : sources_(std::move(sources)), sequence_length_(sequence_length) {
  LH_CHECK(sequence_length > 0 && tokens > 0, "validation on {} tokens in sequences of {}", tokens, sequence_length);
  std::vector<double> weights;
  std::vector<int64_t> remaining;  // tokens not yet planned, of sources that count
  std::vector<int64_t> drawn(sources_.size(), 0);
  std::vector<SourceCursor> cursors(sources_.size());
  for (const DataSource& source : sources_) {
    weights.push_back(source.weight);
    remaining.push_back(source.weight > 0.0 ? source.file.num_tokens() : 0);
  }
  Mixture mixture(weights);  // also checks the weights
  const auto left = [&] { return std::accumulate(remaining.begin(), remaining.end(), int64_t{0}); };
  if (left() == 0) {
    throw DataError("none of the {} validation sources of positive weight has any tokens", sources_.size());
  }
  mixture = Mixture(remaining_weights(sources_, remaining));
  while (left() > 0 && num_sequences() * sequence_length < tokens) {
    SequencePlan plan{.index = num_sequences(), .source = mixture.choose(drawn, sequence_length)};
    const auto s = static_cast<size_t>(plan.source);
    const int64_t taken = std::min(sequence_length, remaining[s]);
    counters_.documents += take_tokens(sources_[s].file, {.shuffle = Shuffle::None, .source_id = plan.source}, taken, cursors[s], plan);
    plan.num_padding = sequence_length - taken;
    drawn[s] += sequence_length;
    remaining[s] -= taken;
    counters_.used += taken;
    counters_.padded += plan.num_padding;
    counters_.targets += plan.num_targets;
    counters_.segments += static_cast<int64_t>(plan.pieces.size());
    plans_.push_back(std::move(plan));
    if (remaining[s] == 0 && left() > 0) {
      mixture = Mixture(remaining_weights(sources_, remaining));
      std::fill(drawn.begin(), drawn.end(), 0);  // the others share what is left by their weights, not by what was
    }
  }
  counters_.dropped = left();
}

Sequence ValidationReader::read(int64_t index) const {
  LH_CHECK(index >= 0, "validation sequence {}", index);
  if (index >= num_sequences()) {
    const SequencePlan padding{.index = -1, .num_padding = sequence_length_};
    return read_sequence(sources_.front().file, padding);
  }
  const SequencePlan& plan = plans_[static_cast<size_t>(index)];
  return read_sequence(sources_[static_cast<size_t>(plan.source)].file, plan);
}

}  // namespace longhaul
