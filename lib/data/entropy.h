// Unigram and bigram entropy of a corpus: what a model reaches that knows only the token frequencies, or only the last
// token. A training run on a small corpus should fall below the bigram entropy; if it does not, it learns no context.
//
// Estimator: plug-in (maximum likelihood) on the whole corpus, with pairs inside documents only,
//   H(x_t)           = - sum_b   c(b)/N   ln( c(b) / N )
//   H(x_t | x_{t-1}) = - sum_a,b c(a,b)/N ln( c(a,b) / c(a) ),   c(a) = sum_b c(a,b),  N = number of pairs,
// where c(b) counts b as the second of a pair. So both average over exactly the positions that a training loss averages
// over: every token of a document but its first, the end-of-document token included. The plug-in estimate is low by
// about (distinct pairs - distinct first tokens) / 2N nats (Miller 1955); `bigram_bias` gives that number, and the
// estimate is not to be trusted where it is not small.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "data/token_file.h"

namespace longhaul {

struct EntropyReport {
  int64_t num_pairs = 0;       // N
  double unigram_nats = 0.0;   // a token
  double bigram_nats = 0.0;    // a token
  double bigram_bias = 0.0;    // nats a token that the plug-in estimate of the bigram entropy is low by, about

  // The whole corpus' nats, in bits, over its bytes of text (which the counts alone do not know).
  [[nodiscard]] double bits_per_byte(double nats, int64_t text_bytes) const;
};

class EntropyCounter {
 public:
  explicit EntropyCounter(int64_t vocab_size);
  // Tokens of one document, all in [0, vocab_size). Pieces of a long document may be added with continue_document.
  void add_document(std::span<const int32_t> tokens);
  void continue_document(std::span<const int32_t> tokens);
  [[nodiscard]] EntropyReport report() const;

 private:
  [[nodiscard]] bool is_dense() const noexcept { return !dense_.empty(); }

  int64_t vocab_size_;
  int64_t previous_ = -1;                        // the token before the next piece; -1 at a document's start
  std::vector<int64_t> dense_;                   // [vocab, vocab] counts of (a, b); empty for a large vocabulary
  std::unordered_map<int64_t, int64_t> sparse_;  // a * vocab + b -> count
};

// Of a whole token file, read once. Zero for a corpus without pairs.
[[nodiscard]] EntropyReport bigram_entropy(const TokenFile& file);

}  // namespace longhaul
