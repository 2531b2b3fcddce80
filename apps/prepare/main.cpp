// prepare: raw text to Megatron .bin/.idx. Flags and exit codes only; the work is data/prepare.h.
#include <CLI/CLI.hpp>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/prepare.h"

namespace {

using namespace longhaul;

constexpr const char* kDescription =
    "Tokenises text and writes a Megatron token file: PREFIX.bin with PREFIX.idx, or with a validation fraction\n"
    "PREFIX_train and PREFIX_validation. Prints documents, tokens, bytes and the unigram and bigram entropy.";

// Fills `options` from the flags. Returns the exit code of a run that ends here (help, version, bad usage), or -1.
[[nodiscard]] int parse(int argc, char** argv, PrepareOptions& options) {
  CLI::App app{kDescription, "prepare"};
  std::vector<std::string> inputs;
  std::string format = "text";
  std::string output;
  app.set_version_flag("--version", std::string("prepare ") + LH_VERSION);
  app.add_option("--input", inputs, "files to read, in this order")->required()->expected(1, -1)->type_name("FILE");
  app.add_option("--format", format, "text: a document a file; jsonl: a document a line, in its field \"text\"")
      ->check(CLI::IsMember({"text", "jsonl"}))
      ->capture_default_str();
  app.add_option("--document-separator", options.corpus.document_separator,
                 "text: what ends a document within a file: blank-line, or the text of a separating line")
      ->type_name("blank-line|LINE");
  app.add_option("--tokenizer", options.tokenizer, "bytes: 256 bytes and an end of document (vocabulary of 257)")
      ->type_name("bytes|FILE")
      ->capture_default_str();
  app.add_option("--output", output, "prefix of the files to write; its folder is made when missing")->required()->type_name("PREFIX");
  app.add_option("--validation-fraction", options.validation_fraction,
                 "share to hold out, 0 to 0.5: whole documents, or the tail of the longest where these are too few")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorKind::Recipe);
  }
  options.corpus.inputs.assign(inputs.begin(), inputs.end());
  options.corpus.format = enum_value<CorpusFormat>(format).value();
  options.output = output;
  return -1;
}

[[nodiscard]] int fail(ErrorKind kind, const char* message) {
  fmt::print(stderr, "prepare: {}: {}\n", to_string(kind), message);
  return static_cast<int>(kind);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    PrepareOptions options;
    if (const int code = parse(argc, argv, options); code >= 0) {
      return code;
    }
    fmt::print("{}", format_report(prepare_corpus(options)));
    return 0;
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::OutOfMemory, "there is not enough memory for the largest document");
  } catch (const std::exception& error) {
    return fail(ErrorKind::Internal, error.what());
  }
}
