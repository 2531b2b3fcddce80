// See data_loader.h.
#include "data/data_loader.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"

namespace longhaul {

namespace {

// What a source can be drawn for: an empty one keeps its place in the list with no weight.
[[nodiscard]] std::vector<double> drawable_weights(std::span<const DataSource> sources) {
  std::vector<double> weights;
  bool any_weight = false;
  bool any_drawable = false;
  for (const DataSource& source : sources) {
    const bool is_empty = source.file.num_tokens() == 0;
    any_weight = any_weight || source.weight > 0.0;
    any_drawable = any_drawable || (source.weight > 0.0 && !is_empty);
    // A wrong weight of an empty source goes on to Mixture, which complains.
    weights.push_back(is_empty && source.weight > 0.0 ? 0.0 : source.weight);
  }
  if (any_weight && !any_drawable) {
    throw DataError("none of the {} data sources of positive weight has any tokens", sources.size());
  }
  return weights;
}

// The entry of `source` in a saved state: the same path, else the same content under another name (a corpus that moved).
[[nodiscard]] std::optional<size_t> find_saved(const std::vector<SourceState>& saved, const std::vector<bool>& is_taken,
                                               const DataSource& source) {
  for (size_t i = 0; i < saved.size(); ++i) {
    if (!is_taken[i] && saved[i].path == source.file.path()) {
      return i;
    }
  }
  for (size_t i = 0; i < saved.size(); ++i) {
    if (!is_taken[i] && saved[i].fingerprint == source.file.fingerprint()) {
      return i;
    }
  }
  return std::nullopt;
}

void check_saved_source(const SourceState& saved, const TokenFile& file, const DocumentOrder& order) {
  if (saved.fingerprint != file.fingerprint()) {
    throw DataError("{} has changed since the checkpoint: its fingerprint was {} and is {}; put the old file back, or start with"
                    " --init-from to take the weights only",
                    file.path(), to_string(saved.fingerprint), to_string(file.fingerprint()));
  }
  const SourceCursor& cursor = saved.cursor;
  if (cursor.position == 0 && cursor.offset == 0) {
    return;
  }
  if (cursor.position >= file.num_documents()) {
    throw CheckpointError("the checkpoint stands at document {} of an epoch of {}, which has {}", cursor.position, file.path(),
                          file.num_documents());
  }
  const EpochOrder epoch_order(order.shuffle, order.seed, order.source_id, cursor.epoch, file.num_documents());
  const int64_t document = epoch_order.document(cursor.position);
  if (cursor.offset != 0 && cursor.offset >= file.document_length(document)) {
    throw CheckpointError("the checkpoint stands at token {} of document {} of {}, which has {}", cursor.offset, document,
                          file.path(), file.document_length(document));
  }
}

[[nodiscard]] SourceState fresh_state(int64_t id, const DataSource& source) {
  return {.id = id, .path = source.file.path(), .fingerprint = source.file.fingerprint(), .weight = source.weight};
}

// Weight by id of the sources in use.
[[nodiscard]] std::map<int64_t, double> shares_of(const std::vector<SourceState>& sources) {
  std::map<int64_t, double> shares;
  for (const SourceState& source : sources) {
    if (source.is_active) {
      shares.emplace(source.id, source.weight);
    }
  }
  return shares;
}

}  // namespace

std::vector<DataSource> open_sources(std::span<const DataSourceOptions> list, const TokenFileOptions& options) {
  std::vector<DataSource> sources;
  for (const DataSourceOptions& source : list) {
    sources.push_back({.file = TokenFile::open(source.path, options), .weight = source.weight});
  }
  return sources;
}

DataLoader::DataLoader(std::vector<DataSource> sources, const LoaderOptions& options)
    : sources_(std::move(sources)), options_(options), mixture_(drawable_weights(sources_)) {
  LH_CHECK(options.sequence_length > 0, "a sequence length of {}", options.sequence_length);
  state_.seed = options.seed;
  state_.shuffle = options.shuffle;
  for (const DataSource& source : sources_) {
    state_.sources.push_back(fresh_state(static_cast<int64_t>(state_.sources.size()), source));
  }
}

void DataLoader::restore(const DataState& state, Continuation continuation) {
  if (state.seed != options_.seed || state.shuffle != options_.shuffle) {
    throw DataError("the run's data order was begun with seed {} and shuffle {}, but the recipe has seed {} and shuffle {}; the"
                    " order cannot change in the middle of an epoch, so keep both",
                    state.seed, enum_name(state.shuffle), options_.seed, enum_name(options_.shuffle));
  }
  const bool is_resume = continuation == Continuation::Resume;
  int64_t next_id = 0;
  for (const SourceState& saved : state.sources) {
    next_id = std::max(next_id, saved.id + 1);
  }
  std::vector<SourceState> merged;
  std::vector<bool> is_taken(state.sources.size(), false);
  for (const DataSource& source : sources_) {
    const auto found = find_saved(state.sources, is_taken, source);
    if (is_resume && (!found || !state.sources[*found].is_active)) {
      throw DataError("the data source {} was not part of the run when the checkpoint was written; sources change at the start of"
                      " a stage only, or with --init-from",
                      source.file.path());
    }
    merged.push_back(fresh_state(next_id, source));
    if (!found) {
      ++next_id;
      continue;
    }
    const SourceState& saved = state.sources[*found];
    check_saved_source(saved, source.file, {.shuffle = state.shuffle, .seed = state.seed, .source_id = saved.id});
    is_taken[*found] = true;
    merged.back().id = saved.id;
    merged.back().cursor = saved.cursor;
    merged.back().mixture_tokens = saved.mixture_tokens;
    merged.back().total_tokens = saved.total_tokens;
  }
  for (size_t i = 0; i < state.sources.size(); ++i) {
    if (is_taken[i]) {
      continue;
    }
    if (is_resume && state.sources[i].is_active) {
      throw DataError("the checkpoint was written while training on {}, which the recipe no longer lists; sources change at the"
                      " start of a stage only, or with --init-from",
                      state.sources[i].path);
    }
    merged.push_back(state.sources[i]);
    merged.back().is_active = false;
  }
  if (shares_of(merged) != shares_of(state.sources)) {
    // Old shares must not be made up for under new weights: the mixture starts to count afresh.
    for (SourceState& source : merged) {
      source.mixture_tokens = 0;
    }
  }
  state_ = state;
  state_.sources = std::move(merged);
}

SequencePlan DataLoader::next_sequence() {
  std::vector<int64_t> drawn;
  for (size_t i = 0; i < sources_.size(); ++i) {
    drawn.push_back(state_.sources[i].mixture_tokens);
  }
  const int64_t length = options_.sequence_length;
  SequencePlan plan{.index = state_.sequences, .source = mixture_.choose(drawn, length)};
  SourceState& source = state_.sources[static_cast<size_t>(plan.source)];
  const DocumentOrder order{.shuffle = state_.shuffle, .seed = state_.seed, .source_id = source.id};
  const int64_t ended = take_tokens(sources_[static_cast<size_t>(plan.source)].file, order, length, source.cursor, plan);
  source.mixture_tokens += length;
  source.total_tokens += length;
  ++state_.sequences;
  state_.counters.used += length;
  state_.counters.targets += plan.num_targets;
  state_.counters.segments += static_cast<int64_t>(plan.pieces.size());
  state_.counters.documents += ended;
  return plan;
}

std::vector<SequencePlan> DataLoader::next_batch(int64_t num_sequences) {
  LH_CHECK(num_sequences >= 0, "a batch of {} sequences", num_sequences);
  std::vector<SequencePlan> batch;
  for (int64_t i = 0; i < num_sequences; ++i) {
    batch.push_back(next_sequence());
  }
  return batch;
}

Sequence DataLoader::read(const SequencePlan& plan) const {
  LH_CHECK(plan.source >= 0 && plan.source < static_cast<int64_t>(sources_.size()), "a plan for source {} of {}", plan.source,
           sources_.size());
  return read_sequence(sources_[static_cast<size_t>(plan.source)].file, plan);
}

SequenceRange sequences_of_rank(int64_t num_sequences, int64_t rank, int64_t num_ranks) {
  LH_CHECK(num_ranks > 0 && rank >= 0 && rank < num_ranks, "rank {} of {}", rank, num_ranks);
  const int64_t each = num_sequences / num_ranks;
  const int64_t more = num_sequences % num_ranks;  // the first ranks take one more
  const int64_t begin = rank * each + std::min(rank, more);
  return {.begin = begin, .end = begin + each + (rank < more ? 1 : 0)};
}

}  // namespace longhaul
