// See entropy.h.
#include "data/entropy.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace longhaul {

namespace {

constexpr int64_t kDenseVocab = 2048;          // 32 MiB of counts
constexpr int64_t kPieceTokens = int64_t{1} << 20;  // so that a document of any length is read in bounded memory

// -c ln(c / total), the share of one count in N times the entropy.
[[nodiscard]] double surprise(int64_t count, int64_t total) {
  return count == 0 ? 0.0 : -static_cast<double>(count) * std::log(static_cast<double>(count) / static_cast<double>(total));
}

}  // namespace

double EntropyReport::bits_per_byte(double nats, int64_t text_bytes) const {
  return text_bytes == 0 ? 0.0 : nats / std::numbers::ln2 * static_cast<double>(num_pairs) / static_cast<double>(text_bytes);
}

EntropyCounter::EntropyCounter(int64_t vocab_size) : vocab_size_(vocab_size) {
  LH_CHECK(vocab_size > 0, "a vocabulary of {} tokens", vocab_size);
  if (vocab_size <= kDenseVocab) {
    dense_.assign(static_cast<size_t>(vocab_size * vocab_size), 0);
  }
}

void EntropyCounter::add_document(std::span<const int32_t> tokens) {
  previous_ = -1;
  continue_document(tokens);
}

void EntropyCounter::continue_document(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    LH_CHECK(token >= 0 && token < vocab_size_, "token {} is outside the vocabulary of {}", token, vocab_size_);
    if (previous_ >= 0) {
      const int64_t pair = previous_ * vocab_size_ + token;
      ++(is_dense() ? dense_[static_cast<size_t>(pair)] : sparse_[pair]);
    }
    previous_ = token;
  }
}

EntropyReport EntropyCounter::report() const {
  // In the order of the pair's number, so that the sum does not depend on a hash table's order.
  std::vector<std::pair<int64_t, int64_t>> counts;  // (a * vocab + b, count)
  for (size_t pair = 0; pair < dense_.size(); ++pair) {
    if (dense_[pair] > 0) {
      counts.emplace_back(static_cast<int64_t>(pair), dense_[pair]);
    }
  }
  counts.insert(counts.end(), sparse_.begin(), sparse_.end());
  std::sort(counts.begin(), counts.end());
  std::vector<int64_t> first(static_cast<size_t>(vocab_size_), 0);
  std::vector<int64_t> second(static_cast<size_t>(vocab_size_), 0);
  EntropyReport report;
  for (const auto& [pair, count] : counts) {
    first[static_cast<size_t>(pair / vocab_size_)] += count;
    second[static_cast<size_t>(pair % vocab_size_)] += count;
    report.num_pairs += count;
  }
  if (report.num_pairs == 0) {
    return report;
  }
  const auto pairs = static_cast<double>(report.num_pairs);
  for (const auto& [pair, count] : counts) {
    report.bigram_nats += surprise(count, first[static_cast<size_t>(pair / vocab_size_)]) / pairs;
  }
  for (const int64_t count : second) {
    report.unigram_nats += surprise(count, report.num_pairs) / pairs;
  }
  const auto contexts = std::count_if(first.begin(), first.end(), [](int64_t count) { return count > 0; });
  report.bigram_bias = static_cast<double>(static_cast<int64_t>(counts.size()) - contexts) / (2.0 * pairs);
  return report;
}

EntropyReport bigram_entropy(const TokenFile& file) {
  EntropyCounter counter(file.vocab_size());
  std::vector<int32_t> tokens;
  for (int64_t document = 0; document < file.num_documents(); ++document) {
    const int64_t length = file.document_length(document);
    counter.add_document({});
    for (int64_t offset = 0; offset < length; offset += kPieceTokens) {
      tokens.resize(static_cast<size_t>(std::min(kPieceTokens, length - offset)));
      file.read(document, offset, tokens);
      counter.continue_document(tokens);
    }
  }
  return counter.report();
}

}  // namespace longhaul
