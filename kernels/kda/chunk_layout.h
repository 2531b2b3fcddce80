// How tokens are cut into documents, chunks and tiles, and how wide a panel row is. Chunks never straddle documents; the
// chunks of document 0 come first. Inside a chunk, rows are processed in tiles of 16, the last one filled up with rows
// that change nothing: q = k = v = 0, beta = 0, decay 1.
#pragma once

#include <algorithm>

#include "base/cast.h"
#include "kernels/kda/documents.h"
#include "kernels/kda/kda.h"

namespace longhaul::kda {

struct Dims {
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t documents = 0;

  // Panel rows are padded with zeros to whole vectors.
  [[nodiscard]] int64_t key_width() const { return round_up(key_dim, kKdaTile); }
  [[nodiscard]] int64_t value_width() const { return round_up(value_dim, kKdaTile); }
  // Offsets are products of int64_t throughout: tokens * heads * key_dim passes 2^31 in ordinary long-context runs.
  [[nodiscard]] int64_t key_offset(int64_t token, int64_t head) const { return (token * heads + head) * key_dim; }
  [[nodiscard]] int64_t value_offset(int64_t token, int64_t head) const { return (token * heads + head) * value_dim; }
  // Of a state, by document or by chunk.
  [[nodiscard]] int64_t state_offset(int64_t index, int64_t head) const {
    return (index * heads + head) * key_dim * value_dim;
  }
};

struct Document {
  int64_t index = 0;
  int64_t first_token = 0;
  int64_t length = 0;
  int64_t first_chunk = 0;

  [[nodiscard]] int64_t chunks() const { return ceil_div(length, kKdaChunk); }
};

struct Chunk {
  int64_t index = 0;        // over all documents
  int64_t first_token = 0;
  int64_t rows = 0;         // 1 to 64

  [[nodiscard]] int64_t tiles() const { return ceil_div(rows, kKdaTile); }
  [[nodiscard]] int64_t padded_rows() const { return tiles() * kKdaTile; }
};

// The chunk at `position` in a document.
[[nodiscard]] inline Chunk chunk_of(const Document& document, int64_t position) {
  const int64_t start = position * kKdaChunk;
  return {.index = document.first_chunk + position,
          .first_token = document.first_token + start,
          .rows = std::min(kKdaChunk, document.length - start)};
}

// Calls fn(document) in order, after check_boundaries.
template <class Fn>
void for_each_document(std::string_view op, const int64_t* cu_seqlens, const Dims& dims, Fn&& fn) {
  check_boundaries(op, cu_seqlens, dims.documents, dims.tokens);
  Document document;
  for (; document.index < dims.documents; ++document.index) {
    document.first_token = cu_seqlens[document.index];
    document.length = cu_seqlens[document.index + 1] - document.first_token;
    fn(document);
    document.first_chunk += document.chunks();
  }
}

}  // namespace longhaul::kda
