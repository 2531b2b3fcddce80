// Entropy against closed forms.
#include "data/entropy.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>

#include "base/philox.h"
#include "data/test_corpus.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::WithinAbs;

TEST_CASE("entropy of a hand-counted corpus", "[data]") {
  // Pairs: 0->1 twice, 0->2 once, 1->0 once. N = 4. H(x|prev) = 3/4 H(2/3, 1/3); second tokens: 1 1 2 0.
  EntropyCounter counter(3);
  counter.add_document(std::vector<int32_t>{0, 1, 0, 2});
  counter.add_document(std::vector<int32_t>{0, 1});
  counter.add_document(std::vector<int32_t>{2});  // no pair
  const EntropyReport report = counter.report();
  CHECK(report.num_pairs == 4);
  CHECK_THAT(report.bigram_nats, WithinAbs(0.75 * (std::log(3.0) - 2.0 / 3.0 * std::log(2.0)), 1e-14));
  CHECK_THAT(report.unigram_nats, WithinAbs(1.5 * std::log(2.0), 1e-14));
  CHECK_THAT(report.bigram_bias, WithinAbs((3.0 - 2.0) / 8.0, 1e-14));
  CHECK_THAT(report.bits_per_byte(std::log(2.0), 8), WithinAbs(0.5, 1e-14));
}

TEST_CASE("a deterministic cycle has no bigram entropy, independent draws have the same of both", "[data]") {
  EntropyCounter cycle(4);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 401; ++i) {
    tokens.push_back(i % 4);
  }
  cycle.add_document(tokens);
  CHECK(cycle.report().bigram_nats == 0.0);
  CHECK_THAT(cycle.report().unigram_nats, WithinAbs(std::log(4.0), 1e-12));

  EntropyCounter uniform(8);
  const RandomStream stream{.seed = 1, .stream = stream_id("entropy")};
  tokens.clear();
  for (uint64_t i = 0; i < 100000; ++i) {
    tokens.push_back(static_cast<int32_t>(stream.below(i, 8)));
  }
  uniform.add_document(tokens);
  const EntropyReport report = uniform.report();
  CHECK_THAT(report.unigram_nats, WithinAbs(std::log(8.0), 3e-4));
  CHECK_THAT(report.bigram_nats + report.bigram_bias, WithinAbs(std::log(8.0), 3e-4));
  CHECK(report.bigram_nats < report.unigram_nats);
}

TEST_CASE("a large vocabulary and pieces of a document give the same numbers", "[data]") {
  EntropyCounter dense(300);
  EntropyCounter sparse(50000);
  const RandomStream stream{.seed = 2, .stream = stream_id("entropy")};
  std::vector<int32_t> tokens;
  for (uint64_t i = 0; i < 5000; ++i) {
    tokens.push_back(static_cast<int32_t>(stream.below(i, 30) * stream.below(i + 5000, 10)));
  }
  dense.add_document(tokens);
  const std::span<const int32_t> all(tokens);
  sparse.add_document(all.first(1234));
  sparse.continue_document(all.subspan(1234));
  CHECK(sparse.report().num_pairs == 4999);
  CHECK_THAT(sparse.report().bigram_nats, WithinAbs(dense.report().bigram_nats, 1e-12));
  CHECK_THAT(sparse.report().unigram_nats, WithinAbs(dense.report().unigram_nats, 1e-12));
}

TEST_CASE("entropy of a token file", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", {{0, 1, 0, 2}, {}, {0, 1}, {2}}, 3);
  const EntropyReport report = bigram_entropy(open_corpus(folder / "t", 3));
  CHECK(report.num_pairs == 4);
  CHECK_THAT(report.unigram_nats, WithinAbs(1.5 * std::log(2.0), 1e-14));
  write_corpus(folder / "none", {{1}}, 3);
  CHECK(bigram_entropy(open_corpus(folder / "none", 3)).bigram_nats == 0.0);
}
