// The byte tokenizer loses nothing.
#include "data/byte_tokenizer.h"

#include <catch2/catch_test_macros.hpp>

#include "base/error.h"

using namespace longhaul;

TEST_CASE("bytes are tokens", "[data]") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    all.push_back(static_cast<char>(byte));
  }
  const auto tokens = ByteTokenizer::encode(all);
  REQUIRE(tokens.size() == 256);
  CHECK(tokens[0] == 0);
  CHECK(tokens[255] == 255);
  CHECK(ByteTokenizer::decode(tokens) == all);
  CHECK(ByteTokenizer::encode("h\xc3\xa9") == std::vector<int32_t>{0x68, 0xc3, 0xa9});
}

TEST_CASE("a document ends with its own token, which decodes to nothing", "[data]") {
  std::vector<int32_t> tokens{1, 2, 3, 4, 5};
  ByteTokenizer::encode_document("ab", tokens);
  CHECK(tokens == std::vector<int32_t>{97, 98, 256});
  CHECK(ByteTokenizer::decode(tokens) == "ab");
  ByteTokenizer::encode_document("", tokens);
  CHECK(tokens == std::vector<int32_t>{256});
  CHECK_THROWS_AS(ByteTokenizer::decode(std::vector<int32_t>{257}), DataError);
  CHECK_THROWS_AS(ByteTokenizer::decode(std::vector<int32_t>{-1}), DataError);
}
