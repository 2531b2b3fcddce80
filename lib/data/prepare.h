// Turns raw text into token files: the whole of the `prepare` command but its flags. Two passes over the input, so that
// memory holds one document and one number a document: the first measures, the second encodes and writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/entropy.h"
#include "data/text_corpus.h"

namespace longhaul {

struct PrepareOptions {
  CorpusOptions corpus;
  std::string tokenizer = "bytes";
  std::filesystem::path output;     // prefix
  double validation_fraction = 0.0;  // 0: one corpus at `output`; else output_train and output_validation
};

struct PreparedCorpus {
  std::string name;  // the prefix that was written, or "all" for the sum
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t text_bytes = 0;
  EntropyReport entropy;
};

struct PrepareReport {
  std::vector<PreparedCorpus> corpora;  // what was written; then, when that is two, both together
  int64_t empty_documents = 0;          // without text, left out
};

// RecipeError for options that make no sense, DataError for input that does not; nothing is left behind then.
[[nodiscard]] PrepareReport prepare_corpus(const PrepareOptions& options);

// A table for people.
[[nodiscard]] std::string format_report(const PrepareReport& report);

}  // namespace longhaul
