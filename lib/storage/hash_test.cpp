// XXH3-64: the published value for no input, and that parts, whole and file agree.
#include "storage/hash.h"

#include <catch2/catch_test_macros.hpp>

#include "storage/atomic_write.h"
#include "storage/temporary_directory.h"

using namespace longhaul;

TEST_CASE("hashes of memory, parts and files agree", "[storage]") {
  CHECK(hash_text("") == 0x2d06800538d394c2ull);  // the reference implementation's value for empty input and seed 0
  std::string text;
  for (int i = 0; i < 100000; ++i) {
    text += static_cast<char>(i * 31 + i / 251);
  }
  const uint64_t whole = hash_text(text);
  StreamingHash parts;
  for (size_t at = 0, step = 1; at < text.size(); at += step, step = step * 3 + 1) {
    const std::string_view part = std::string_view(text).substr(at, step);
    parts.update(std::as_bytes(std::span(part.data(), part.size())));
  }
  CHECK(parts.digest() == whole);

  const TemporaryDirectory folder;
  const auto path = folder.path() / "file";
  write_text_atomically(path, text, ErrorKind::Data);
  CHECK(hash_file(path, ErrorKind::Data) == FileHash{.bytes = 100000, .hash = whole});
  CHECK(hash_file_range(path, 5, 90, ErrorKind::Data) == FileHash{.bytes = 90, .hash = hash_text(text.substr(5, 90))});
  CHECK(hash_file_range(path, 99999, 90, ErrorKind::Data).bytes == 1);
  text[77777] = static_cast<char>(text[77777] ^ 1);
  CHECK(hash_text(text) != whole);
  CHECK_THROWS_AS(hash_file(folder.path() / "absent", ErrorKind::Data), DataError);
}

TEST_CASE("a hash reads back from its text", "[storage]") {
  CHECK(hash_to_text(0xabcull) == "0000000000000abc");
  CHECK(hash_from_text("0000000000000abc", ErrorKind::Checkpoint) == 0xabcull);
  for (const char* bad : {"", "abc", "0000000000000abg", "00000000000000abc", "-000000000000abc", "0x00000000000abc"}) {
    CHECK_THROWS_AS(hash_from_text(bad, ErrorKind::Checkpoint), CheckpointError);
  }
}
