// Packing: documents, one after the other, fill sequences of the stage's length. No token is dropped, repeated or
// padded: a document that does not fit continues at the start of its source's next sequence.
//
// A sequence comes from one source and is cut into segments, each a piece of one document. Layers must isolate segments
// (attention, recurrent state and convolution history start anew at each), so a continuation begins with an empty state.
// The target of a token is the next token of its document, even when the document is cut right there: one token is read
// ahead across the cut. Only the last token of a document has no target, and counts for no loss.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ignored_target.h"
#include "data/sampler.h"
#include "data/token_file.h"

namespace longhaul {

// A run of one document's tokens; becomes one segment.
struct DocumentPiece {
  int64_t document = 0;
  int64_t offset = 0;  // first token, within the document
  int64_t length = 0;

  friend bool operator==(const DocumentPiece&, const DocumentPiece&) = default;
};

// What a sequence will hold, known from document lengths alone. Every rank plans every sequence and reads only its own.
struct SequencePlan {
  int64_t index = 0;             // in the run's global order; -1 for padding sequences of a validation pass
  int64_t source = 0;            // in the list of sources
  std::vector<DocumentPiece> pieces;     // in order
  int64_t num_targets = 0;       // positions with a target
  int64_t num_padding = 0;       // positions after the last piece; 0 in training

  friend bool operator==(const SequencePlan&, const SequencePlan&) = default;
};

struct Sequence {
  std::vector<int32_t> tokens;      // [sequence_length]
  std::vector<int32_t> targets;     // [sequence_length], kIgnoredTarget where there is none
  std::vector<int64_t> cu_seqlens;  // [segments + 1], from 0 to sequence_length
  int64_t num_targets = 0;
  int64_t num_padding = 0;          // trailing positions, a segment of their own: token 0 without target

  friend bool operator==(const Sequence&, const Sequence&) = default;
};

// Where a source's endless stream of documents stands: `offset` tokens into the document at `position` of `epoch`.
struct SourceCursor {
  int64_t epoch = 0;
  int64_t position = 0;
  int64_t offset = 0;

  friend bool operator==(const SourceCursor&, const SourceCursor&) = default;
};

// How a source's documents are ordered; with the cursor, all that decides what comes next.
struct DocumentOrder {
  Shuffle shuffle = Shuffle::Documents;
  uint64_t seed = 0;
  int64_t source_id = 0;
};

// Appends the next `tokens` tokens of the stream to `plan` and moves the cursor over them. Documents without tokens are
// passed over. Reads lengths only. The file must not be empty. Returns the number of documents that ended.
int64_t take_tokens(const TokenFile& file, const DocumentOrder& order, int64_t tokens, SourceCursor& cursor, SequencePlan& plan);

// Reads what was planned. DataError for a token outside the vocabulary.
[[nodiscard]] Sequence read_sequence(const TokenFile& file, const SequencePlan& plan);

// Appends `next` to a micro-batch: tokens and targets follow, boundaries are shifted.
void append(Sequence& batch, const Sequence& next);

}  // namespace longhaul
