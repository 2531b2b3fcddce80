// See prepare.h.
#include "data/prepare.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "data/byte_tokenizer.h"
#include "data/corpus_split.h"
#include "data/token_writer.h"

namespace longhaul {

namespace {

[[nodiscard]] std::filesystem::path with_ending(std::filesystem::path prefix, const char* ending) { return prefix += ending; }

// A corpus being written, and its numbers.
class Output {
 public:
  explicit Output(const std::filesystem::path& prefix)
      : writer_(prefix, ByteTokenizer::kVocabSize), counter_(ByteTokenizer::kVocabSize) {
    result_.name = prefix.string();
  }

  void add(std::string_view text, std::span<const int32_t> tokens) {
    writer_.add_document(tokens);
    counter_.add_document(tokens);
    result_.text_bytes += static_cast<int64_t>(text.size());
  }

  [[nodiscard]] PreparedCorpus finish() {
    writer_.finish();
    result_.documents = writer_.num_documents();
    result_.tokens = writer_.num_tokens();
    result_.entropy = counter_.report();
    return result_;
  }

 private:
  TokenFileWriter writer_;
  EntropyCounter counter_;
  PreparedCorpus result_;
};

void check_options(const PrepareOptions& options, const std::vector<std::filesystem::path>& prefixes) {
  if (options.tokenizer != ByteTokenizer::kName) {
    throw RecipeError("--tokenizer {}: tokenizer files (tokenizer.json, tiktoken) are not supported yet; use --tokenizer bytes",
                      options.tokenizer);
  }
  if (!(options.validation_fraction >= 0.0 && options.validation_fraction <= 0.5)) {
    throw RecipeError("--validation-fraction must be from 0 to 0.5, got {}", options.validation_fraction);
  }
  if (!options.corpus.document_separator.empty() && options.corpus.format != CorpusFormat::Text) {
    throw RecipeError("--document-separator belongs to --format text; a line of JSONL is a document already");
  }
  if (options.output.filename().empty()) {
    throw RecipeError("--output must be a prefix such as data/corpus, got \"{}\"", options.output.string());
  }
  for (const auto& prefix : prefixes) {
    for (const auto& output : {bin_path(prefix), idx_path(prefix)}) {
      for (const auto& input : options.corpus.inputs) {
        std::error_code not_both_exist;
        if (std::filesystem::equivalent(input, output, not_both_exist)) {
          throw RecipeError("--output {} would overwrite the input {}", options.output.string(), input.string());
        }
      }
    }
  }
}

// The first pass: bytes of every document that has any.
[[nodiscard]] std::vector<int64_t> measure(const CorpusOptions& corpus, int64_t& empty_documents) {
  std::vector<int64_t> bytes;
  for_each_document(corpus, [&](std::string_view text) {
    if (text.empty()) {
      ++empty_documents;
    } else {
      bytes.push_back(static_cast<int64_t>(text.size()));
    }
  });
  if (bytes.empty()) {
    throw DataError("the {} input files hold no text", corpus.inputs.size());
  }
  return bytes;
}

// The second pass: gives every part of every document to write(text, is_validation).
template <class Write>
void distribute(const PrepareOptions& options, const std::vector<int64_t>& bytes, const CorpusSplit& split, Write&& write) {
  size_t document = 0;
  for_each_document(options.corpus, [&](std::string_view text) {
    if (text.empty()) {
      return;
    }
    if (document >= bytes.size() || static_cast<int64_t>(text.size()) != bytes[document]) {
      throw DataError("the input changed while it was read (at document {})", document);
    }
    if (static_cast<int64_t>(document) == split.cut_document) {
      const auto cut = static_cast<size_t>(find_cut(text, split.cut_bytes));
      write(text.substr(0, cut), false);
      write(text.substr(cut), true);
    } else {
      write(text, static_cast<bool>(split.is_validation[document]));
    }
    ++document;
  });
  if (document != bytes.size()) {
    throw DataError("the input changed while it was read: {} documents, then {}", bytes.size(), document);
  }
}

}  // namespace

PrepareReport prepare_corpus(const PrepareOptions& options) {
  const bool is_split = options.validation_fraction > 0.0;
  std::vector<std::filesystem::path> prefixes{options.output};
  if (is_split) {
    prefixes = {with_ending(options.output, "_train"), with_ending(options.output, "_validation")};
  }
  check_options(options, prefixes);
  PrepareReport report;
  const std::vector<int64_t> bytes = measure(options.corpus, report.empty_documents);
  const CorpusSplit split = is_split ? split_corpus(bytes, options.validation_fraction)
                                     : CorpusSplit{.is_validation = std::vector<bool>(bytes.size(), false)};
  Output first(prefixes[0]);
  std::optional<Output> validation;
  if (is_split) {
    validation.emplace(prefixes[1]);
  }
  EntropyCounter all(ByteTokenizer::kVocabSize);
  std::vector<int32_t> tokens;
  distribute(options, bytes, split, [&](std::string_view text, bool is_validation) {
    ByteTokenizer::encode_document(text, tokens);
    (is_validation ? *validation : first).add(text, tokens);
    all.add_document(tokens);
  });
  report.corpora.push_back(first.finish());
  if (is_split) {
    report.corpora.push_back(validation->finish());
    const PreparedCorpus& a = report.corpora[0];
    const PreparedCorpus& b = report.corpora[1];
    report.corpora.push_back({.name = "all",
                              .documents = a.documents + b.documents,
                              .tokens = a.tokens + b.tokens,
                              .text_bytes = a.text_bytes + b.text_bytes,
                              .entropy = all.report()});
  }
  return report;
}

std::string format_report(const PrepareReport& report) {
  size_t width = 6;
  for (const PreparedCorpus& corpus : report.corpora) {
    width = std::max(width, corpus.name.size());
  }
  std::string out = fmt::format("{:<{}}  {:>10}  {:>12}  {:>12}  {:>16}  {:>16}\n", "", width, "", "", "", "unigram entropy", "bigram entropy");
  out += fmt::format("{:<{}}  {:>10}  {:>12}  {:>12}  {:>7}  {:>7}  {:>7}  {:>7}\n", "corpus", width, "documents", "tokens", "bytes",
                     "nats", "bit/B", "nats", "bit/B");
  for (const PreparedCorpus& corpus : report.corpora) {
    const EntropyReport& e = corpus.entropy;
    out += fmt::format("{:<{}}  {:>10}  {:>12}  {:>12}  {:>7.4f}  {:>7.4f}  {:>7.4f}  {:>7.4f}\n", corpus.name, width, corpus.documents,
                       corpus.tokens, corpus.text_bytes, e.unigram_nats, e.bits_per_byte(e.unigram_nats, corpus.text_bytes),
                       e.bigram_nats, e.bits_per_byte(e.bigram_nats, corpus.text_bytes));
  }
  out += fmt::format("entropy: plug-in estimate over pairs within documents, nats a token; the bigram value of {} is low by about"
                     " {:.4f}\n",
                     report.corpora.back().name, report.corpora.back().entropy.bigram_bias);
  if (report.empty_documents > 0) {
    out += fmt::format("left out: {} documents without text\n", report.empty_documents);
  }
  return out;
}

}  // namespace longhaul
