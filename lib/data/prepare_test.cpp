// Raw text to token files: documents of both formats, the split, and what is refused.
#include "data/prepare.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <numeric>

#include "data/byte_tokenizer.h"
#include "data/corpus_split.h"
#include "data/test_corpus.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Strings = std::vector<std::string>;

[[nodiscard]] Strings documents_of(const TemporaryFolder& folder, const std::string& content, CorpusFormat format,
                                   const std::string& separator = "") {
  write_file(folder / "in", content);
  Strings result;
  for_each_document({.inputs = {folder / "in"}, .format = format, .document_separator = separator},
                    [&](std::string_view text) { result.emplace_back(text); });
  return result;
}

[[nodiscard]] Strings decoded(const std::filesystem::path& prefix) {
  const TokenFile file = open_corpus(prefix, 257);
  Strings result;
  for (int64_t d = 0; d < file.num_documents(); ++d) {
    const auto tokens = file.read_document(d);
    CHECK(tokens.back() == ByteTokenizer::kEndOfDocument);
    result.push_back(ByteTokenizer::decode(tokens));
  }
  return result;
}

}  // namespace

TEST_CASE("text is cut into documents", "[data]") {
  const TemporaryFolder folder;
  const auto text = [&](const std::string& content, const std::string& separator) {
    return documents_of(folder, content, CorpusFormat::Text, separator);
  };
  CHECK(text("a\n\nb\n", "") == Strings{"a\n\nb\n"});
  CHECK(text("", "") == Strings{""});
  CHECK(text("a\nb\n\n\nc\n", "blank-line") == Strings{"a\nb", "c"});
  CHECK(text("\n\na\n \t\r\nb", "blank-line") == Strings{"a", "b"});
  CHECK(text("a\r\n\r\nb\r\n", "blank-line") == Strings{"a\r", "b\r"});
  CHECK(text("\n\n", "blank-line").empty());
  CHECK(text("a\n\nb\n===\nc\n====\n", "===") == Strings{"a\n\nb", "c\n===="});
  CHECK(text("a\r\n===\r\nb", "===") == Strings{"a\r", "b"});
}

TEST_CASE("lines of JSON are documents; a bad one is named", "[data]") {
  const TemporaryFolder folder;
  const auto jsonl = [&](const std::string& content) { return documents_of(folder, content, CorpusFormat::Jsonl); };
  CHECK(jsonl("{\"text\": \"a\\nb\"}\n\n{\"id\": 7, \"text\": \"\\u00e9\"}\r\n{\"text\": \"\"}") == Strings{"a\nb", "\xc3\xa9", ""});
  const auto error_of = [&](const std::string& line) {
    return message_of<DataError>([&] { (void)jsonl("{\"text\": \"fine\"}\n" + line + "\n"); });
  };
  for (const char* line : {"{\"text\": \"a\"", "x", "{\"text\": \"a\"} {}", "[\"a\"]", "{\"body\": \"a\"}", "{\"text\": 5}",
                           "{\"text\": null}", "{\"text\": \"\xff\"}", "{\"text\": \"\\ud800\"}"}) {
    INFO(line);
    CHECK_THAT(error_of(line), ContainsSubstring("in:2: "));
  }
}

TEST_CASE("a corpus is written, reported and read back", "[data]") {
  const TemporaryFolder folder;
  write_file(folder / "one.txt", "abab");
  write_file(folder / "empty.txt", "");
  write_file(folder / "two.txt", std::string("\0\xff\n", 3));
  const PrepareReport report = prepare_corpus(
      {.corpus = {.inputs = {folder / "one.txt", folder / "empty.txt", folder / "two.txt"}}, .output = folder / "sub/dir/corpus"});
  CHECK(decoded(folder / "sub/dir/corpus") == Strings{"abab", std::string("\0\xff\n", 3)});
  REQUIRE(report.corpora.size() == 1);
  CHECK(report.corpora[0].documents == 2);
  CHECK(report.corpora[0].tokens == 9);
  CHECK(report.corpora[0].text_bytes == 7);
  CHECK(report.empty_documents == 1);
  CHECK(report.corpora[0].entropy.num_pairs == 7);
  CHECK_THAT(format_report(report), ContainsSubstring("1 documents without text"));
}

TEST_CASE("whole documents are held out, the same every time", "[data]") {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 200; ++i) {
    content += fmt::format("{{\"text\": \"document {} {}\"}}\n", i, std::string(static_cast<size_t>(i % 13), 'x'));
  }
  write_file(folder / "in.jsonl", content);
  const PrepareOptions options{.corpus = {.inputs = {folder / "in.jsonl"}, .format = CorpusFormat::Jsonl},
                               .output = folder / "c",
                               .validation_fraction = 0.1};
  const PrepareReport report = prepare_corpus(options);
  auto train = decoded(folder / "c_train");
  const auto validation = decoded(folder / "c_validation");
  CHECK(train.size() + validation.size() == 200);
  CHECK(report.corpora.size() == 3);
  CHECK(report.corpora[2].documents == 200);
  CHECK(report.corpora[2].text_bytes == report.corpora[0].text_bytes + report.corpora[1].text_bytes);
  const double share = static_cast<double>(report.corpora[1].text_bytes) / static_cast<double>(report.corpora[2].text_bytes);
  CHECK(share >= 0.1);
  CHECK(share < 0.12);
  for (const auto& text : validation) {
    CHECK(std::find(train.begin(), train.end(), text) == train.end());
  }
  const std::string before = read_file(folder / "c_validation.bin");
  (void)prepare_corpus(options);
  CHECK(read_file(folder / "c_validation.bin") == before);
  CHECK_FALSE(std::filesystem::exists(folder / "c.bin"));
}

TEST_CASE("a single document gives its tail, cut at a paragraph", "[data]") {
  const TemporaryFolder folder;
  std::string content;
  for (int i = 0; i < 40; ++i) {
    content += fmt::format("paragraph {}\nsecond line\n\n", i);
  }
  write_file(folder / "in.txt", content);
  const PrepareReport report =
      prepare_corpus({.corpus = {.inputs = {folder / "in.txt"}}, .output = folder / "c", .validation_fraction = 0.2});
  const auto train = decoded(folder / "c_train");
  const auto validation = decoded(folder / "c_validation");
  REQUIRE(train.size() == 1);
  REQUIRE(validation.size() == 1);
  CHECK(train[0] + validation[0] == content);
  CHECK(train[0].ends_with("\n\n"));
  CHECK(validation[0].starts_with("paragraph"));
  const auto tail = static_cast<double>(validation[0].size());
  CHECK(tail > 0.15 * static_cast<double>(content.size()));
  CHECK(tail <= 0.2 * static_cast<double>(content.size()));
  CHECK(report.corpora[2].tokens == static_cast<int64_t>(content.size()) + 2);
}

TEST_CASE("where a document is cut", "[data]") {
  CHECK(find_cut("aaaa\n\nbbbb\ncc", 8) == 6);
  CHECK(find_cut("aaaa\nbbbbcc", 6) == 5);
  CHECK(find_cut("aaaabbbbcc", 4) == 6);
  CHECK(find_cut("aaaa\xc3\xa9\xc3\xa9", 3) == 6);  // not inside the first e acute
  CHECK(find_cut("ab", 1) == 1);
  CHECK(find_cut("ab", 100) == 1);
  CHECK(find_cut("\n\n\n\n", 2) == 2);
  CHECK_THROWS_AS(find_cut("a", 1), DataError);
}

TEST_CASE("the split is near the wanted share for any mixture of lengths", "[data]") {
  const std::vector<std::vector<int64_t>> corpora{{100}, {100, 3}, {3, 18, 18}, {1, 1}, {1000, 1000, 1000}, std::vector<int64_t>(1000, 7),
                                                  {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}};
  for (const auto& lengths : corpora) {
    for (const double fraction : {0.001, 0.05, 0.3, 0.5}) {
      const CorpusSplit split = split_corpus(lengths, fraction);
      const double wanted = fraction * static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
      int64_t held_out = split.cut_bytes;
      bool is_train_left = split.cut_document >= 0;
      for (size_t i = 0; i < lengths.size(); ++i) {
        held_out += split.is_validation[i] ? lengths[i] : 0;
        is_train_left = is_train_left || !split.is_validation[i];
      }
      CHECK(is_train_left);
      CHECK(static_cast<double>(held_out) <= std::max(1.0, 1.5 * wanted));
      CHECK(static_cast<double>(held_out) >= std::floor(0.5 * wanted));
      CHECK(held_out > 0);
      if (split.cut_document >= 0) {
        CHECK(held_out <= lengths[static_cast<size_t>(split.cut_document)]);
      }
    }
  }
}

TEST_CASE("options and inputs that make no sense are refused and leave nothing", "[data]") {
  const TemporaryFolder folder;
  write_file(folder / "in.txt", "text");
  write_file(folder / "in.bin", "text");
  write_file(folder / "empty.txt", "");
  const PrepareOptions good{.corpus = {.inputs = {folder / "in.txt"}}, .output = folder / "out/c"};
  const auto refusal = [&](auto change) {
    PrepareOptions options = good;
    change(options);
    return message_of<RecipeError>([&] { (void)prepare_corpus(options); });
  };
  CHECK_THAT(refusal([](auto& o) { o.tokenizer = "tokenizer.json"; }), ContainsSubstring("not supported yet"));
  CHECK_THAT(refusal([](auto& o) { o.validation_fraction = 0.6; }), ContainsSubstring("0.6"));
  CHECK_THAT(refusal([](auto& o) { o.validation_fraction = -0.1; }), ContainsSubstring("-0.1"));
  CHECK_THAT(refusal([](auto& o) { o.output = "somewhere/"; }), ContainsSubstring("--output"));
  CHECK_THAT(refusal([](auto& o) {
               o.corpus.format = CorpusFormat::Jsonl;
               o.corpus.document_separator = "blank-line";
             }),
             ContainsSubstring("--document-separator"));
  CHECK_THAT(refusal([&](auto& o) {
               o.corpus.inputs = {folder / "in.bin"};
               o.output = folder / "in";
             }),
             ContainsSubstring("overwrite"));
  const auto invalid = [&](auto change) {
    PrepareOptions options = good;
    change(options);
    return message_of<DataError>([&] { (void)prepare_corpus(options); });
  };
  CHECK_THAT(invalid([&](auto& o) { o.corpus.inputs = {folder / "missing.txt"}; }), ContainsSubstring("missing.txt"));
  CHECK_THAT(invalid([&](auto& o) { o.corpus.inputs = {folder.path()}; }), ContainsSubstring("not a regular file"));
  CHECK_THAT(invalid([&](auto& o) { o.corpus.inputs = {folder / "empty.txt"}; }), ContainsSubstring("no text"));
  CHECK_THAT(invalid([&](auto& o) { o.output = folder / "in.txt/c"; }), ContainsSubstring("folder"));
  write_file(folder / "one.txt", "x");
  CHECK_THAT(invalid([&](auto& o) {
               o.corpus.inputs = {folder / "one.txt"};
               o.validation_fraction = 0.5;
             }),
             ContainsSubstring("too small"));
  const auto out = folder / "out";
  CHECK((!std::filesystem::exists(out) || std::filesystem::is_empty(out)));
}
