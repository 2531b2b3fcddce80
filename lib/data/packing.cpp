// See packing.h.
#include "data/packing.h"

#include <algorithm>

#include "base/error.h"

namespace longhaul {

int64_t take_tokens(const TokenFile& file, const DocumentOrder& order, int64_t tokens, SourceCursor& cursor, SequencePlan& plan) {
  LH_CHECK(file.num_tokens() > 0, "{} has no tokens to take", file.path());
  int64_t documents_ended = 0;
  EpochOrder epoch_order(order.shuffle, order.seed, order.source_id, cursor.epoch, file.num_documents());
  while (tokens > 0) {
    const int64_t document = epoch_order.document(cursor.position);
    const int64_t length = file.document_length(document);
    const int64_t taken = std::min(tokens, length - cursor.offset);
    if (taken > 0) {
      plan.pieces.push_back({.document = document, .offset = cursor.offset, .length = taken});
      plan.num_targets += taken;
      cursor.offset += taken;
      tokens -= taken;
    }
    if (cursor.offset < length) {
      continue;
    }
    if (length > 0) {
      ++documents_ended;
      --plan.num_targets;  // the document's last token
    }
    cursor.offset = 0;
    if (++cursor.position == file.num_documents()) {
      cursor.position = 0;
      ++cursor.epoch;
      epoch_order = EpochOrder(order.shuffle, order.seed, order.source_id, cursor.epoch, file.num_documents());
    }
  }
  return documents_ended;
}

Sequence read_sequence(const TokenFile& file, const SequencePlan& plan) {
  int64_t length = plan.num_padding;
  for (const DocumentPiece& piece : plan.pieces) {
    length += piece.length;
  }
  Sequence sequence;
  sequence.tokens.reserve(static_cast<size_t>(length));
  sequence.targets.reserve(static_cast<size_t>(length));
  sequence.cu_seqlens.push_back(0);
  std::vector<int32_t> run;  // a piece and, where the document goes on, one token more
  for (const DocumentPiece& piece : plan.pieces) {
    const bool goes_on = piece.offset + piece.length < file.document_length(piece.document);
    run.resize(static_cast<size_t>(piece.length + (goes_on ? 1 : 0)));
    file.read(piece.document, piece.offset, run);
    sequence.tokens.insert(sequence.tokens.end(), run.begin(), run.begin() + piece.length);
    sequence.targets.insert(sequence.targets.end(), run.begin() + 1, run.end());
    if (!goes_on) {
      sequence.targets.push_back(kIgnoredTarget);
    }
    sequence.cu_seqlens.push_back(sequence.cu_seqlens.back() + piece.length);
  }
  if (plan.num_padding > 0) {
    sequence.tokens.resize(static_cast<size_t>(length), 0);
    sequence.targets.resize(static_cast<size_t>(length), kIgnoredTarget);
    sequence.cu_seqlens.push_back(length);
  }
  sequence.num_targets = plan.num_targets;
  sequence.num_padding = plan.num_padding;
  return sequence;
}

void append(Sequence& batch, const Sequence& next) {
  if (batch.cu_seqlens.empty()) {
    batch.cu_seqlens.push_back(0);
  }
  const auto start = static_cast<int64_t>(batch.tokens.size());
  batch.tokens.insert(batch.tokens.end(), next.tokens.begin(), next.tokens.end());
  batch.targets.insert(batch.targets.end(), next.targets.begin(), next.targets.end());
  for (size_t i = 1; i < next.cu_seqlens.size(); ++i) {
    batch.cu_seqlens.push_back(start + next.cu_seqlens[i]);
  }
  batch.num_targets += next.num_targets;
  batch.num_padding += next.num_padding;
}

}  // namespace longhaul
