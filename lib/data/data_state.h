// Where a run stands in its data: one small struct, the same on every rank, saved in every checkpoint. It counts
// documents and tokens, never sequences or ranks, so it outlives a change of sequence length, batch size or layout.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/fingerprint.h"
#include "data/packing.h"
#include "data/sampler.h"

namespace longhaul {

struct SourceState {
  int64_t id = 0;             // given at first use and kept for good; keys the shuffle
  std::string path;
  Fingerprint fingerprint;
  bool is_active = true;      // false: an earlier stage used it, the present one does not; its place is kept
  SourceCursor cursor;
  double weight = 0.0;
  int64_t mixture_tokens = 0;  // drawn since the sources or weights last changed; what the mixture looks at
  int64_t total_tokens = 0;    // drawn since the run's start

  friend bool operator==(const SourceState&, const SourceState&) = default;
};

// Tokens since the run's start. used + dropped + padded is all that was asked of the data; the packing of training
// sequences neither drops nor pads, and the log shows that it does not.
struct DataCounters {
  int64_t used = 0;       // tokens delivered
  int64_t targets = 0;    // of these, with a target
  int64_t dropped = 0;
  int64_t padded = 0;
  int64_t segments = 0;
  int64_t documents = 0;  // ended

  friend bool operator==(const DataCounters&, const DataCounters&) = default;
};

struct DataState {
  uint64_t seed = 0;
  Shuffle shuffle = Shuffle::Documents;
  int64_t sequences = 0;  // planned so far; the index of the next one
  DataCounters counters;
  std::vector<SourceState> sources;  // the active ones in the recipe's order, then the others

  friend bool operator==(const DataState&, const DataState&) = default;
};

[[nodiscard]] nlohmann::json to_json(const DataState& state);
// CheckpointError names the key that is missing, of the wrong type or out of range.
[[nodiscard]] DataState data_state_from_json(const nlohmann::json& json);

// Equal on two ranks exactly when they stand at the same place in the same data. File names are left out: nodes may keep
// copies of the corpus in different folders.
[[nodiscard]] uint64_t hash(const DataState& state);

}  // namespace longhaul
