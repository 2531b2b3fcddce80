// No change to any file of a checkpoint goes unnoticed, and incomplete checkpoints are passed over.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "checkpoint/checkpoint_test_support.h"
#include "checkpoint/directory_names.h"
#include "checkpoint/find.h"
#include "storage/atomic_write.h"
#include "storage/temporary_directory.h"

using namespace longhaul;
using namespace longhaul::checkpoint_test;
using Catch::Matchers::ContainsSubstring;

namespace fs = std::filesystem;

namespace {

// What stops a load of everything; empty when nothing does.
std::string load_error(const fs::path& checkpoint) {
  try {
    (void)load_state(checkpoint);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "";
}

void overwrite(const fs::path& path, const std::string& content) { write_text_atomically(path, content, ErrorKind::Checkpoint); }

fs::path saved_on_two_ranks(const fs::path& run, int64_t step, Compression compression = Compression::None) {
  const std::vector<NamedTensor> state = global_state(static_cast<uint64_t>(step));
  run_ranks(2, [&](HostComm& comm, int rank) {
    save_checkpoint(comm, run, content_of(state, step, rank, 2), {.compression = compression});
  });
  return checkpoints_directory(run) / step_name(step);
}

}  // namespace

TEST_CASE("a flipped byte in any file is found, and its tensor named", "[checkpoint]") {
  const Compression compression = GENERATE(Compression::None, Compression::Zstd);
  const TemporaryDirectory run(TemporaryDirectory::fast_parent());
  const fs::path path = saved_on_two_ranks(run.path(), 10, compression);
  REQUIRE(load_error(path).empty());
  const Manifest manifest = read_manifest(path);
  int64_t named = 0;
  int64_t named_compressed = 0;
  for (const std::string& name : names_in(path)) {
    const std::string good = read_text(path / name, ErrorKind::Checkpoint);
    for (size_t at = 0; at < good.size(); at += 23) {
      CAPTURE(name, at);
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x10);
      overwrite(path / name, bad);
      const std::string error = load_error(path);
      REQUIRE_THAT(error, ContainsSubstring(name));
      for (const auto& [tensor_name, tensor] : manifest.tensors) {
        for (const StoredPiece& piece : tensor.pieces) {
          const int64_t bytes = piece.block.shape.numel() * size_of(tensor.spec.dtype);
          const auto position = static_cast<int64_t>(at);
          if (piece.file == name && piece.chunks.empty() && piece.file_offset <= position && position < piece.file_offset + bytes) {
            REQUIRE_THAT(error, ContainsSubstring("damaged in tensor \"" + tensor_name + "\""));
            ++named;
          }
          for (const StoredChunk& chunk : piece.chunks) {
            if (piece.file == name && chunk.file_offset <= position && position < chunk.file_offset + chunk.bytes) {
              REQUIRE_THAT(error, ContainsSubstring("damaged in tensor \"" + tensor_name + "\", compressed bytes"));
              ++named_compressed;
            }
          }
        }
      }
    }
    overwrite(path / name, good);
  }
  CHECK(named > 20);
  CHECK((compression == Compression::Zstd) == (named_compressed > 100));
  CHECK(load_error(path).empty());
}

TEST_CASE("missing, truncated, grown and swapped files are found", "[checkpoint]") {
  const TemporaryDirectory run(TemporaryDirectory::fast_parent());
  const fs::path path = saved_on_two_ranks(run.path(), 10);
  for (const std::string& name : names_in(path)) {
    CAPTURE(name);
    const std::string good = read_text(path / name, ErrorKind::Checkpoint);
    fs::remove(path / name);
    CHECK_THAT(load_error(path), ContainsSubstring(name));
    CHECK_FALSE(incomplete_reason(path).empty());
    overwrite(path / name, good.substr(0, good.size() - 1));
    CHECK_THAT(load_error(path), ContainsSubstring(name));
    CHECK_FALSE(incomplete_reason(path).empty());
    overwrite(path / name, "");
    CHECK_THAT(load_error(path), ContainsSubstring(name));
    overwrite(path / name, good + "x");
    CHECK_THAT(load_error(path), ContainsSubstring(name));
    overwrite(path / name, good);
    CHECK(load_error(path).empty());
  }
  fs::rename(path / "rank_00000.h5", path / "aside");
  fs::rename(path / "rank_00001.h5", path / "rank_00000.h5");
  fs::rename(path / "aside", path / "rank_00001.h5");
  CHECK_THAT(load_error(path), ContainsSubstring("rank_0000"));

  // A whole file of the same run at another step has the right structure and size, but not the right hash.
  const fs::path first = saved_on_two_ranks(run.path(), 20);
  const fs::path second = saved_on_two_ranks(run.path(), 30);
  fs::copy_file(first / "rank_00001.h5", second / "rank_00001.h5", fs::copy_options::overwrite_existing);
  CHECK_THAT(load_error(second), ContainsSubstring("rank_00001.h5 is damaged"));
}

TEST_CASE("the newest complete checkpoint is found and what was passed over is told", "[checkpoint]") {
  const TemporaryDirectory run;
  const fs::path checkpoints = checkpoints_directory(run.path());
  std::vector<std::string> skipped;
  const auto find = [&](const RequiredDocuments& required = {}) {
    skipped.clear();
    const auto found = find_latest(run.path(), [&](const std::string& text) { skipped.push_back(text); }, required);
    return found ? found->step : -1;
  };
  CHECK(find() == -1);
  for (const int64_t step : {10, 20, 30, 40}) {
    (void)saved_on_two_ranks(run.path(), step);
  }
  CHECK(find() == 40);
  CHECK(skipped.empty());
  fs::remove(checkpoints / "latest");  // a help for people, not the truth
  CHECK(find() == 40);
  fs::create_directories(checkpoints / ".step_00000050.inprogress");
  fs::remove(checkpoints / "step_00000040/manifest.json");
  fs::resize_file(checkpoints / "step_00000030/rank_00001.h5", 100);
  CHECK(find() == 20);
  REQUIRE(skipped.size() == 3);
  CHECK(skipped[0] == "skipped incomplete step_00000050: its save did not finish");
  CHECK_THAT(skipped[1], ContainsSubstring("skipped incomplete step_00000040: ") && ContainsSubstring("manifest.json"));
  CHECK(skipped[2].starts_with("skipped incomplete step_00000030: rank_00001.h5 has 100 bytes, wanted "));
  CHECK(find({.shared = {"data"}, .of_every_rank = {"packing"}}) == 20);
  CHECK(find({.shared = {"data", "rng"}}) == -1);
  CHECK_THAT(skipped.back(), ContainsSubstring("step_00000020: the document \"rng\" is missing"));
  CHECK(find({.of_every_rank = {"rng"}}) == -1);
  CHECK_THAT(skipped.back(), ContainsSubstring("the document \"rng\" of rank 0 is missing"));

  CHECK_THROWS_WITH(CheckpointReader(checkpoints / "step_00000040"), ContainsSubstring("not a complete checkpoint"));
  CHECK_THROWS_WITH(CheckpointReader(checkpoints / ".step_00000050.inprogress"), ContainsSubstring("did not finish"));
  CHECK_THROWS_WITH(CheckpointReader(checkpoints / "step_00000099"), ContainsSubstring("not a directory"));
}

TEST_CASE("a save replaces what an interrupted save of its step left, and says so", "[checkpoint]") {
  const TemporaryDirectory run;
  const fs::path checkpoints = checkpoints_directory(run.path());
  const std::vector<NamedTensor> state = global_state(3);
  fs::create_directories(checkpoints / "step_00000020");
  overwrite(checkpoints / "step_00000020/rank_00000.h5", "half");
  fs::create_directories(checkpoints / ".step_00000020.inprogress");
  overwrite(checkpoints / ".step_00000020.inprogress/rank_00007.h5", "half");
  overwrite(checkpoints / "latest.tmp-1", "half");
  std::vector<std::string> warnings;
  SaveOptions options;
  options.warn = [&](const std::string& text) { warnings.push_back(text); };
  save_alone(run.path(), state, 20, options);
  REQUIRE(warnings.size() == 2);
  CHECK_THAT(warnings[0], ContainsSubstring("removing") && ContainsSubstring(".step_00000020.inprogress"));
  CHECK_THAT(warnings[1], ContainsSubstring("replacing the incomplete") && ContainsSubstring("step_00000020"));
  CHECK(names_in(checkpoints) == std::vector<std::string>{"latest", "step_00000020"});
  CHECK(same_state(load_state(checkpoints / "step_00000020"), state));
}

TEST_CASE("a checkpoint that was moved aside counts while its place holds nothing usable", "[checkpoint]") {
  for (const bool has_half : {false, true}) {
    const TemporaryDirectory run(TemporaryDirectory::fast_parent());
    const fs::path checkpoints = checkpoints_directory(run.path());
    save_alone(run.path(), global_state(20), 20);
    fs::rename(checkpoints / "step_00000020", checkpoints / ".step_00000020.replaced");
    if (has_half) {
      fs::create_directories(checkpoints / "step_00000020");
    }
    const auto found = find_latest(run.path(), [](const std::string&) {});
    REQUIRE(found);
    CHECK(same_state(load_state(found->path), global_state(20)));
    std::vector<std::string> warnings;
    SaveOptions options;
    options.warn = [&](const std::string& text) { warnings.push_back(text); };
    save_alone(run.path(), global_state(30), 30, options);
    REQUIRE(warnings.size() == 1);
    CHECK_THAT(warnings[0], ContainsSubstring("recovered step_00000020"));
    CHECK(names_in(checkpoints) == std::vector<std::string>{"latest", "step_00000020", "step_00000030"});
    CHECK(same_state(load_state(checkpoints / "step_00000020"), global_state(20)));
  }
}
