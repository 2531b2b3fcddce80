// Token files: golden bytes of the formats, round trips in every stored type, and damage of every kind, which must end
// in a DataError and never in a crash or in wrong tokens.
#include "data/token_file.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "data/test_corpus.h"

using namespace longhaul;
using namespace longhaul::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// A Megatron index as another writer would make it.
struct IndexParts {
  uint64_t version = 1;
  uint8_t dtype = 8;
  std::vector<int32_t> lengths;
  std::vector<int64_t> pointers;
  std::vector<int64_t> boundaries;
  std::string modes;

  [[nodiscard]] std::string bytes() const {
    std::string out("MMIDIDX\0\0", 9);
    out += bytes_of_value(version) + bytes_of_value(dtype) + bytes_of_value(uint64_t{lengths.size()}) +
           bytes_of_value(uint64_t{boundaries.size()});
    for (const auto value : lengths) out += bytes_of_value(value);
    for (const auto value : pointers) out += bytes_of_value(value);
    for (const auto value : boundaries) out += bytes_of_value(value);
    return out + modes;
  }
};

template <class T>
[[nodiscard]] std::string stored(const std::vector<int64_t>& tokens) {
  std::string out;
  for (const int64_t token : tokens) {
    out += bytes_of_value(static_cast<T>(token));
  }
  return out;
}

[[nodiscard]] std::string llmc_file(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
  std::string out = bytes_of_value(magic) + bytes_of_value(version) + bytes_of_value(count);
  out.resize(1024, '\0');
  return out + tokens;
}

[[nodiscard]] std::string open_error(const std::filesystem::path& path, int64_t vocab_size = 60000) {
  return message_of<DataError>([&] { (void)open_corpus(path, vocab_size); });
}

}  // namespace

TEST_CASE("golden bytes of a Megatron pair", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "golden", {{5, 6, 7}, {8, 9}}, 50257);
  CHECK(hex(read_file(folder / "golden.bin")) == "05000600070008000900");
  CHECK(hex(read_file(folder / "golden.idx")) ==
        "4d4d4944494458000001000000000000000802000000000000000300000000000000030000000200000000000000000000000600000000000000"
        "000000000000000001000000000000000200000000000000");
  const TokenFile file = open_corpus(folder / "golden");
  CHECK(file.num_documents() == 2);
  CHECK(file.num_tokens() == 5);
  CHECK(file.document_length(1) == 2);
  CHECK(file.read_document(0) == std::vector<int32_t>{5, 6, 7});
  std::vector<int32_t> tail(1);
  file.read(1, 1, tail);
  CHECK(tail[0] == 9);
  CHECK_THROWS_AS(file.read(1, 2, tail), InternalError);
  CHECK_THROWS_AS(file.document_length(2), InternalError);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);  // no temporary file is left
}

TEST_CASE("the writer takes u16 below a vocabulary of 65500 and i32 from there", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "small", {{65498}}, 65499);
  write_corpus(folder / "large", {{65499, 163839}}, 163840);
  CHECK(open_corpus(folder / "small", 65499).type() == TokenType::U16);
  const TokenFile large = open_corpus(folder / "large", 163840);
  CHECK(large.type() == TokenType::I32);
  CHECK(large.read_document(0) == std::vector<int32_t>{65499, 163839});
  TokenFileWriter writer(folder / "refused", 65000);
  CHECK_THROWS_AS(writer.add_document(std::vector<int32_t>{65000}), DataError);
  CHECK_THROWS_AS(writer.add_document(std::vector<int32_t>{-1}), DataError);
}

TEST_CASE("a writer that does not finish leaves the old corpus alone and nothing behind", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "c", {{1, 2}});
  {
    TokenFileWriter writer(folder / "c", 100);
    writer.add_document(std::vector<int32_t>{3});
  }
  CHECK(open_corpus(folder / "c").read_document(0) == std::vector<int32_t>{1, 2});
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 2);
  write_corpus(folder / "c", {{4}});
  CHECK(open_corpus(folder / "c").read_document(0) == std::vector<int32_t>{4});
}

TEST_CASE("every stored integer type reads back", "[data]") {
  const TemporaryFolder folder;
  const std::vector<int64_t> tokens{1, 2, 100, 3, 0};
  const auto check = [&]<class T>(uint8_t code, T) {
    const IndexParts idx{.dtype = code, .lengths = {3, 2}, .pointers = {0, 3 * sizeof(T)}, .boundaries = {0, 1, 2}};
    write_file(folder / "t.idx", idx.bytes());
    write_file(folder / "t.bin", stored<T>(tokens));
    const TokenFile file = open_corpus(folder / "t");
    CHECK(file.read_document(0) == std::vector<int32_t>{1, 2, 100});
    CHECK(file.read_document(1) == std::vector<int32_t>{3, 0});
  };
  check(1, uint8_t{});
  check(2, int8_t{});
  check(3, int16_t{});
  check(4, int32_t{});
  check(5, int64_t{});
  check(8, uint16_t{});
}

TEST_CASE("a document may be several sequences, one, or empty", "[data]") {
  const TemporaryFolder folder;
  const IndexParts idx{.lengths = {2, 0, 1, 2}, .pointers = {0, 4, 4, 6}, .boundaries = {0, 3, 3, 4}, .modes = std::string(4, '\0')};
  write_file(folder / "t.idx", idx.bytes());
  write_file(folder / "t.bin", stored<uint16_t>({1, 2, 3, 4, 5}));
  const TokenFile file = open_corpus(folder / "t");
  CHECK(file.read_document(0) == std::vector<int32_t>{1, 2, 3});
  CHECK(file.document_length(1) == 0);
  CHECK(file.read_document(2) == std::vector<int32_t>{4, 5});
}

TEST_CASE("a Megatron index that contradicts itself or its .bin is refused", "[data]") {
  const TemporaryFolder folder;
  const IndexParts good{.lengths = {2, 3}, .pointers = {0, 4}, .boundaries = {0, 1, 2}};
  const auto error_of = [&](const IndexParts& idx, int64_t tokens = 5) {
    write_file(folder / "t.idx", idx.bytes());
    write_file(folder / "t.bin", stored<uint16_t>(std::vector<int64_t>(static_cast<size_t>(tokens), 7)));
    return open_error(folder / "t");
  };
  const auto changed = [&](auto change) {
    IndexParts idx = good;
    change(idx);
    return error_of(idx);
  };
  CHECK(error_of(good).empty());
  CHECK_THAT(error_of(good, 4), ContainsSubstring("truncated"));
  CHECK_THAT(error_of(good, 6), ContainsSubstring("10 bytes of tokens, but the .bin beside it has 12"));
  CHECK_THAT(changed([](auto& i) { i.version = 2; }), ContainsSubstring("version 2"));
  CHECK_THAT(changed([](auto& i) { i.dtype = 7; }), ContainsSubstring("floating-point"));
  CHECK_THAT(changed([](auto& i) { i.dtype = 9; }), ContainsSubstring("dtype code 9"));
  CHECK_THAT(changed([](auto& i) { i.dtype = 4; }), ContainsSubstring("whole number of i32"));
  CHECK_THAT(changed([](auto& i) { i.lengths[0] = -2; }), ContainsSubstring("negative length -2"));
  CHECK_THAT(changed([](auto& i) { i.pointers[1] = 6; }), ContainsSubstring("sequence 1 starts at byte 6"));
  CHECK_THAT(changed([](auto& i) { i.boundaries[1] = 3; }), ContainsSubstring("document 1 starts at sequence 3"));
  CHECK_THAT(changed([](auto& i) { i.boundaries = {0, 2, 1}; }), ContainsSubstring("document 2 starts at sequence 1"));
  CHECK_THAT(changed([](auto& i) { i.boundaries = {0, 1, 1}; }), ContainsSubstring("belong to no document"));
  CHECK_THAT(changed([](auto& i) { i.boundaries = {1, 1, 2}; }), ContainsSubstring("document 0 starts at sequence 1"));
  CHECK_THAT(changed([](auto& i) { i.boundaries.clear(); }), ContainsSubstring("cannot hold"));
  CHECK_THAT(changed([](auto& i) { i.modes = std::string("\0\1", 2); }), ContainsSubstring("multimodal"));
}

TEST_CASE("every truncation of a pair is a DataError", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", {{5, 6, 7}, {8, 9}}, 50257);
  for (const char* name : {"t.idx", "t.bin"}) {
    const std::string whole = read_file(folder / name);
    for (size_t size = 0; size < whole.size(); ++size) {
      write_file(folder / name, whole.substr(0, size));
      INFO(name << " cut to " << size << " bytes");
      CHECK_FALSE(open_error(folder / "t").empty());
    }
    write_file(folder / name, whole);
  }
  CHECK(open_error(folder / "t").empty());
  std::filesystem::remove(folder / "t.bin");
  CHECK_THAT(open_error(folder / "t"), ContainsSubstring("t.bin"));
}

TEST_CASE("no flipped bit of an index reads beyond the file", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "t", {{5, 6, 7}, {8, 9}}, 50257);
  const std::string whole = read_file(folder / "t.idx");
  int refused = 0;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    write_file(folder / "t.idx", damaged);
    try {
      const TokenFile file = open_corpus(folder / "t");
      for (int64_t d = 0; d < file.num_documents(); ++d) {
        (void)file.read_document(d);
      }
    } catch (const DataError&) {
      ++refused;
    }
  }
  // A document boundary may move between sequences and a dtype may stay of two bytes: a few flips are still an index.
  CHECK(refused >= static_cast<int>(8 * whole.size()) - 8);
}

TEST_CASE("a token outside the vocabulary is named with its document", "[data]") {
  const TemporaryFolder folder;
  std::vector<std::vector<int32_t>> documents(3, std::vector<int32_t>(10, 1));
  documents[1][4] = 70000;
  write_corpus(folder / "t", documents, 163840);
  const std::string message = open_error(folder / "t", 65536);
  CHECK_THAT(message, ContainsSubstring("document 1"));
  CHECK_THAT(message, ContainsSubstring("70000"));
  CHECK_THAT(message, ContainsSubstring("position 4"));
  // Where the sample at opening does not look, reading does.
  documents.assign(1, std::vector<int32_t>(10000, 1));
  documents[0][9000] = 70000;
  write_corpus(folder / "deep", documents, 163840);
  const TokenFile file = open_corpus(folder / "deep", 65536);
  std::vector<int32_t> out(10);
  file.read(0, 0, out);
  CHECK_THAT(message_of<DataError>([&] { file.read(0, 8995, out); }), ContainsSubstring("position 9000"));
  // Signed types.
  write_file(folder / "n.idx", IndexParts{.dtype = 3, .lengths = {2}, .pointers = {0}, .boundaries = {0, 1}}.bytes());
  write_file(folder / "n.bin", stored<int16_t>({5, -5}));
  CHECK_THAT(open_error(folder / "n"), ContainsSubstring("token -5"));
}

TEST_CASE("llm.c files: documents begin at their token", "[data]") {
  const TemporaryFolder folder;
  write_file(folder / "gpt2.bin", llmc_file(20240520, 1, 7, stored<uint16_t>({50256, 11, 12, 50256, 13, 50256, 50256})));
  const TokenFile gpt2 = open_corpus(folder / "gpt2.bin");
  CHECK(gpt2.num_documents() == 4);
  CHECK(gpt2.num_tokens() == 7);
  CHECK(gpt2.read_document(0) == std::vector<int32_t>{50256, 11, 12});
  CHECK(gpt2.read_document(1) == std::vector<int32_t>{50256, 13});
  CHECK(gpt2.document_length(3) == 1);
  CHECK(open_corpus(folder / "gpt2").num_documents() == 4);  // without the suffix

  write_file(folder / "llama.bin", llmc_file(20240801, 7, 5, stored<uint32_t>({9, 8, 128000, 7, 6})));
  const TokenFile llama = open_corpus(folder / "llama.bin", 128256);
  CHECK(llama.num_documents() == 2);
  CHECK(llama.read_document(0) == std::vector<int32_t>{9, 8});
  CHECK(llama.read_document(1) == std::vector<int32_t>{128000, 7, 6});
  const TokenFile other = TokenFile::open(folder / "llama.bin", {.vocab_size = 128256, .document_token = 8});
  CHECK(other.read_document(1) == std::vector<int32_t>{8, 128000, 7, 6});

  write_file(folder / "empty.bin", llmc_file(20240520, 1, 0, ""));
  CHECK(open_corpus(folder / "empty.bin").num_tokens() == 0);
}

TEST_CASE("damaged llm.c files are refused", "[data]") {
  const TemporaryFolder folder;
  const auto error_of = [&](const std::string& content) {
    write_file(folder / "t.bin", content);
    return open_error(folder / "t.bin");
  };
  const std::string good = llmc_file(20240520, 1, 2, stored<uint16_t>({50256, 11}));
  CHECK(error_of(good).empty());
  for (size_t size = 0; size < good.size(); size += size < 8 || size >= 1020 ? 1 : 101) {
    INFO("cut to " << size << " bytes");
    CHECK_FALSE(error_of(good.substr(0, size)).empty());
  }
  CHECK_FALSE(error_of(good + "x").empty());
  CHECK_THAT(error_of(llmc_file(20240520, 2, 0, "")), ContainsSubstring("version 2"));
  CHECK_THAT(error_of(llmc_file(20240801, 1, 0, "")), ContainsSubstring("version 7"));
  CHECK_THAT(error_of(llmc_file(20240522, 1, 0, "")), ContainsSubstring("evaluation"));
  CHECK_THAT(error_of(llmc_file(20240520, 1, -1, "")), ContainsSubstring("-1 tokens"));
  CHECK_THAT(error_of(llmc_file(12345, 1, 0, "")), ContainsSubstring("no index"));
  CHECK_THAT(error_of(llmc_file(20240801, 7, 1, stored<uint32_t>({4000000000}))), ContainsSubstring("4000000000"));
  CHECK_THAT(open_error(folder / "missing"), ContainsSubstring("prepare"));
  CHECK_THAT(open_error(folder.path()), ContainsSubstring("no token file"));
}

TEST_CASE("a fingerprint tells corpora apart and survives a copy", "[data]") {
  const TemporaryFolder folder;
  write_corpus(folder / "a", {{1, 2, 3}, {4}});
  write_corpus(folder / "same", {{1, 2, 3}, {4}});
  write_corpus(folder / "token", {{1, 2, 3}, {5}});
  write_corpus(folder / "cut", {{1, 2}, {3, 4}});  // the same .bin
  const Fingerprint a = open_corpus(folder / "a").fingerprint();
  CHECK(open_corpus(folder / "same").fingerprint() == a);
  CHECK_FALSE(open_corpus(folder / "token").fingerprint() == a);
  CHECK_FALSE(open_corpus(folder / "cut").fingerprint() == a);
  CHECK(parse_fingerprint(to_string(a)) == a);
  for (const char* wrong : {"", "12", "12:", ":0123456789abcdef", "12:0123456789abcdeg", "12:0123456789abcdef0"}) {
    CHECK_THROWS_AS(parse_fingerprint(wrong), CheckpointError);
  }
}
