// The training data of a run. The global order of sequences is a function of the seed and of the position alone: every
// rank plans every sequence, from document lengths, and reads the tokens of its own. How many ranks there are, and which
// of them reads what, is not known here.
//
//   loader.next_batch(n)  plans the next n sequences of the global order and moves the cursor; the same call on all ranks
//   loader.read(plan)     reads one planned sequence; const, and safe from several threads
//   loader.state()        the cursor after the last next_batch; save it, and restore() it into a new loader to go on
//
// A caller that plans ahead of the step it trains keeps a copy of state() with each batch. A stage with another sequence
// length or other sources makes a new loader and restores the state with Continuation::NewStage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/data_options.h"
#include "data/data_state.h"
#include "data/mixture.h"
#include "data/packing.h"
#include "data/token_file.h"

namespace longhaul {

struct DataSource {
  TokenFile file;
  double weight = 1.0;
};

// Opens all files of a list. DataError from the first that is not sound.
[[nodiscard]] std::vector<DataSource> open_sources(std::span<const DataSourceOptions> list, const TokenFileOptions& options);

struct LoaderOptions {
  int64_t sequence_length = 0;
  uint64_t seed = 0;
  Shuffle shuffle = Shuffle::Documents;
};

enum class Continuation {
  Resume,    // the recipe's sources must be those of the state
  NewStage,  // sources may come and go; those that stay go on where they stood
};

class DataLoader {
 public:
  // From the start of the data. An empty source is kept but never drawn. DataError when no source of positive weight
  // has tokens; RecipeError for weights that make no mixture.
  DataLoader(std::vector<DataSource> sources, const LoaderOptions& options);

  // Continues where `state` was taken. DataError when a file's content has changed since, when seed or shuffle differ,
  // or (Resume) when sources were added or removed; CheckpointError when the state does not fit the files.
  void restore(const DataState& state, Continuation continuation);

  [[nodiscard]] std::vector<SequencePlan> next_batch(int64_t num_sequences);
  [[nodiscard]] Sequence read(const SequencePlan& plan) const;

  [[nodiscard]] const DataState& state() const noexcept { return state_; }
  [[nodiscard]] std::span<const DataSource> sources() const noexcept { return sources_; }
  [[nodiscard]] int64_t sequence_length() const noexcept { return options_.sequence_length; }

 private:
  [[nodiscard]] SequencePlan next_sequence();

  std::vector<DataSource> sources_;
  LoaderOptions options_;
  Mixture mixture_;
  DataState state_;  // sources: entry i belongs to sources_[i]; inactive ones follow
};

// The sequences of one rank among `num_sequences` of a batch: consecutive, and equal in number where that divides.
struct SequenceRange {
  int64_t begin = 0;
  int64_t end = 0;
};
[[nodiscard]] SequenceRange sequences_of_rank(int64_t num_sequences, int64_t rank, int64_t num_ranks);

}  // namespace longhaul
