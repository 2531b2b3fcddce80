// A file appears whole or not at all, and failures say what to do.
#include "storage/atomic_write.h"

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <string>

#include "storage/temporary_directory.h"

using namespace longhaul;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a staged file replaces the old one only when it is published", "[storage]") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "note.txt";
  write_text_atomically(path, "old", ErrorKind::Checkpoint);
  int64_t observed = 0;
  {
    StagedFile file(path, ErrorKind::Checkpoint, [&](int64_t bytes) { observed += bytes; });
    file.write("new ");
    CHECK(read_text(path, ErrorKind::Checkpoint) == "old");
    file.write("text");
    file.publish();
    CHECK(file.bytes() == 8);
  }
  CHECK(observed == 8);
  CHECK(read_text(path, ErrorKind::Checkpoint) == "new text");
  {
    StagedFile abandoned(path, ErrorKind::Checkpoint);
    abandoned.write("half");
  }
  CHECK(read_text(path, ErrorKind::Checkpoint) == "new text");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator{}) == 1);
}

TEST_CASE("errors are of the caller's kind and name the path", "[storage]") {
  const TemporaryDirectory folder;
  const auto absent = folder.path() / "absent" / "file";
  CHECK_THROWS_AS(write_text_atomically(absent, "x", ErrorKind::Checkpoint), CheckpointError);
  CHECK_THROWS_AS(write_text_atomically(absent, "x", ErrorKind::Conversion), ConversionError);
  CHECK_THROWS_AS(read_text(absent, ErrorKind::Data), DataError);
  CHECK_THROWS_WITH(read_text(absent, ErrorKind::Data), ContainsSubstring(absent.string()));
  CHECK_THROWS_AS(read_text(folder.path(), ErrorKind::Data), DataError);
  write_text_atomically(folder.path() / "big", std::string(100, 'x'), ErrorKind::Data);
  CHECK_THROWS_AS(read_text(folder.path() / "big", ErrorKind::Data, 99), DataError);
  CHECK_THROWS_AS(rename_durably(absent, folder.path() / "y", ErrorKind::Checkpoint), CheckpointError);
  CHECK_THROWS_AS(sync_file(absent, ErrorKind::Checkpoint), CheckpointError);
  CHECK_THROWS_AS(sync_directory(absent, ErrorKind::Checkpoint), CheckpointError);
}

TEST_CASE("a write that the system refuses leaves the old file", "[storage]") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "limited";
  write_text_atomically(path, "old", ErrorKind::Checkpoint);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 1000, .rlim_max = before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK_THROWS_WITH(write_text_atomically(path, std::string(5000, 'x'), ErrorKind::Checkpoint), ContainsSubstring("ulimit -f"));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, old_handler);
  CHECK(read_text(path, ErrorKind::Checkpoint) == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator{}) == 1);
}
