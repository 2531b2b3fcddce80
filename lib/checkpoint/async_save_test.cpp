// A save in the background writes the state of the moment when it began, whatever happens to the tensors afterwards, in a
// bounded amount of memory; its errors reach all ranks; what a kill leaves is tested with the others in fault_test.cpp.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <future>
#include <source_location>

#include "checkpoint/async_save.h"
#include "checkpoint/checkpoint_test_support.h"
#include "checkpoint/directory_names.h"
#include "storage/atomic_write.h"
#include "storage/hdf5.h"
#include "storage/temporary_directory.h"

using namespace longhaul;
using namespace longhaul::checkpoint_test;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int64_t kStagingBytes = 16 << 20;

void overwrite(const TensorView& view, int value) {
  if (view.bytes() > 0) {
    std::memset(view.raw(), value, static_cast<size_t>(view.bytes()));
  }
}

// A state of 40 MB beside the small one: more than the staging buffer holds.
std::vector<NamedTensor> large_state(uint64_t seed) {
  std::vector<NamedTensor> state = global_state(seed);
  for (const char* name : {"model/large", "optimizer/m/large"}) {
    Tensor tensor(DType::F32, {5, 1000, 1000});
    for (size_t i = 0; i < tensor.values<float>().size(); ++i) {
      tensor.values<float>()[i] = static_cast<float>((i * 7919 + seed) % 100003);
    }
    state.push_back({name, std::move(tensor)});
  }
  return state;
}

// For what is checked on the threads of ranks, where Catch2 must not be used.
void expect(bool condition, std::source_location where = std::source_location::current()) {
  LH_CHECK(condition, "the expectation in line {} does not hold", where.line());
}

bool changes_at_once(const std::string& name) { return name.starts_with("balance/"); }

CheckpointContent content_for_background(const std::vector<NamedTensor>& state, int64_t step, int rank = 0, int size = 1) {
  CheckpointContent content = content_of(state, step, rank, size);
  for (Piece& piece : content.pieces) {
    piece.stability = changes_at_once(piece.name) ? Stability::None : Stability::UntilRelease;
  }
  return content;
}

std::string file_text(const std::filesystem::path& path) { return read_text(path, ErrorKind::Checkpoint); }

}  // namespace

TEST_CASE("a save in the background is that of the moment when it began", "[checkpoint]") {
  for (const int size : {1, 2}) {
    CAPTURE(size);
    const TemporaryDirectory run;
    const std::vector<NamedTensor> before = large_state(1);
    const std::vector<NamedTensor> live = large_state(1);
    run_ranks(size, [&](HostComm& comm, int rank) {
      AsyncSaver saver(comm, {}, kStagingBytes);
      expect(!saver.poll());
      expect(!saver.finish());
      saver.begin(run.path(), content_for_background(live, 10, rank, size));
      expect(saver.is_pending());
      comm.barrier();
      for (const NamedTensor& entry : live) {
        if (rank == 0 && changes_at_once(entry.name)) {
          overwrite(entry.tensor, 0xAA);
        }
      }
      saver.release_tensors();
      comm.barrier();
      for (const NamedTensor& entry : live) {
        if (rank == 0) {
          overwrite(entry.tensor, 0xBB);
        }
      }
      const std::optional<FinishedSave> finished = saver.finish();
      expect(finished.has_value());
      expect(!saver.is_pending());
      expect(finished->step == 10);
      expect(finished->saved.path == run.path() / "checkpoints/step_00000010");
      expect(finished->stall_seconds > 0);
      expect(saver.staging_high_water() <= kStagingBytes);
    });
    std::vector<NamedTensor> loaded = large_state(2);
    run_ranks(size, [&](HostComm& comm, int rank) {
      CheckpointReader reader = open_checkpoint(comm, run.path() / "checkpoints/step_00000010");
      load_tensors(comm, reader, {.pieces = pieces_of(loaded, rank, size)});
    });
    CHECK(same_state(loaded, before));
    CHECK(file_text(run.path() / "checkpoints/latest") == "step_00000010\n");
  }
}

TEST_CASE("a background save that is polled ends by itself, and equals one that is waited for", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = large_state(3);
  SelfHostComm comm;
  AsyncSaver saver(comm, {}, kStagingBytes);
  saver.begin(run.path() / "a", content_for_background(state, 20));
  CHECK_THROWS_AS(saver.begin(run.path() / "a", content_for_background(state, 30)), Error);  // one at a time
  std::optional<FinishedSave> finished;
  for (int64_t step = 0; !finished; ++step) {
    saver.release_tensors();
    finished = saver.poll();
  }
  const SavedCheckpoint waited = save_checkpoint(comm, run.path() / "b", content_of(state, 20));
  CHECK(finished->saved.bytes > 40000000);
  // The order of the tensors in the file may differ: what may change comes first. All else is the same.
  CheckpointReader background(finished->saved.path);
  verify_checkpoint(comm, background);
  const Manifest& a = background.manifest();
  const Manifest b = read_manifest(waited.path);
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    CAPTURE(name);
    CHECK(tensor.spec == b.tensors.at(name).spec);
    CHECK(tensor.pieces.front().hash == b.tensors.at(name).pieces.front().hash);
  }
  CHECK(a.documents == b.documents);
  CHECK(a.info.recipe == b.info.recipe);
}

TEST_CASE("what the writer has not reached is copied while the step is computed", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> before = large_state(11);
  const std::vector<NamedTensor> live = large_state(11);
  std::promise<void> go;
  const std::shared_future<void> gate = go.get_future().share();
  SaveOptions options;
  options.fault = [&](std::string_view point, int64_t) {
    if (point == "bytes") {
      gate.wait();
    }
  };
  SelfHostComm comm;
  AsyncSaver saver(comm, options, int64_t{64} << 20);
  saver.begin(run.path(), content_for_background(live, 10));
  while (saver.staging_high_water() < 39000000) {  // all but what the writer took first; a snapshot that nobody takes: a timeout
    std::this_thread::yield();
  }
  saver.release_tensors();  // although nothing has been written
  for (const NamedTensor& entry : live) {
    overwrite(entry.tensor, 0xBB);
  }
  CHECK_FALSE(saver.poll());
  go.set_value();
  const std::optional<FinishedSave> finished = saver.finish();
  REQUIRE(finished);
  const std::vector<NamedTensor> loaded = large_state(12);
  CheckpointReader reader = open_checkpoint(comm, finished->saved.path);
  load_tensors(comm, reader, {.pieces = pieces_of(loaded, 0, 1)});
  CHECK(same_state(loaded, before));
}

TEST_CASE("tensors of a device are read by the thread that began the save alone", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = large_state(4);
  const Device gpu{.kind = DeviceKind::Cuda, .index = 0};
  const auto main_thread = std::this_thread::get_id();
  std::atomic<int64_t> moved = 0;
  SaveOptions options;
  options.copy = [&](const TensorView& from, const TensorView& to) {
    LH_CHECK(std::this_thread::get_id() == main_thread, "a device was touched by another thread");
    std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
    moved += from.bytes();
  };
  SelfHostComm comm;
  AsyncSaver saver(comm, options, kStagingBytes);
  CheckpointContent content = content_for_background(state, 10);
  int64_t bytes = 0;
  for (Piece& piece : content.pieces) {
    piece.data = TensorView(piece.data.raw(), piece.data.dtype(), piece.data.shape(), gpu);
    bytes += piece.data.bytes();
  }
  saver.begin(run.path(), std::move(content));  // copies what finds room, which the thread makes meanwhile
  saver.release_tensors();
  CHECK(moved == bytes);
  const std::optional<FinishedSave> finished = saver.finish();
  REQUIRE(finished);
  CHECK(saver.staging_high_water() <= kStagingBytes);
  const std::vector<NamedTensor> loaded = large_state(5);
  CheckpointReader reader = open_checkpoint(comm, finished->saved.path);
  load_tensors(comm, reader, {.pieces = pieces_of(loaded, 0, 1)});
  CHECK(same_state(loaded, state));
}

TEST_CASE("a failure in the background is the same error on all ranks, and the next save works", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = large_state(6);
  const std::vector<NamedTensor> old_state = global_state(7);
  save_alone(run.path(), old_state, 10);
  for (const std::string point : {"bytes", "after_rank_file", "before_index", "before_manifest", "before_rename"}) {
    CAPTURE(point);
    const int failing = point.starts_with("before") ? 0 : 1;
    std::vector<std::string> errors(2);
    std::atomic<bool> is_broken = true;
    run_ranks(2, [&](HostComm& comm, int rank) {
      SaveOptions options;
      options.fault = [&, rank](std::string_view reached, int64_t) {
        if (is_broken && rank == failing && reached == point) {
          throw CheckpointError("the disk is gone");
        }
      };
      AsyncSaver saver(comm, options, kStagingBytes);
      saver.begin(run.path(), content_for_background(state, 20, rank, 2));
      try {
        while (!saver.poll()) {
          saver.release_tensors();
        }
      } catch (const CheckpointError& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
      expect(!saver.is_pending());
      comm.barrier();
      if (rank == 0) {
        expect(names_in(checkpoints_directory(run.path())) == std::vector<std::string>{"latest", "step_00000010"});
        is_broken = false;
      }
      comm.barrier();
      saver.begin(run.path(), content_for_background(state, 20, rank, 2));
      saver.release_tensors();
      expect(saver.finish().has_value());
    });
    CHECK_THAT(errors[0], ContainsSubstring(fmt::format("[rank {}]", failing)) && ContainsSubstring("the disk is gone") &&
                              ContainsSubstring("step_00000020"));
    CHECK(errors[0] == errors[1]);
    std::filesystem::remove_all(run.path() / "checkpoints/step_00000020");
    write_text_atomically(run.path() / "checkpoints/latest", "step_00000010\n", ErrorKind::Checkpoint);
  }
  CHECK(same_state(load_state(run.path() / "checkpoints/step_00000010"), old_state));
}

TEST_CASE("a save that nobody finishes leaves the checkpoint before it", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = large_state(8);
  save_alone(run.path(), state, 10);
  SelfHostComm comm;
  {
    std::promise<void> go;
    const std::shared_future<void> gate = go.get_future().share();
    SaveOptions options;
    options.fault = [&](std::string_view point, int64_t) {
      if (point == "bytes") {
        gate.wait();
      }
    };
    AsyncSaver saver(comm, options, kStagingBytes);
    saver.begin(run.path(), content_for_background(state, 20));
    CHECK_FALSE(saver.poll());
    go.set_value();
  }
  CHECK_FALSE(std::filesystem::exists(run.path() / "checkpoints/step_00000020"));
  std::vector<std::string> warnings;
  AsyncSaver saver(comm, {.warn = [&](const std::string& text) { warnings.push_back(text); }}, kStagingBytes);
  saver.begin(run.path(), content_for_background(state, 30));
  CHECK(saver.finish());
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], ContainsSubstring(".step_00000020.inprogress, left by a save that did not finish"));
  CHECK(names_in(checkpoints_directory(run.path())) == std::vector<std::string>{"latest", "step_00000010", "step_00000030"});
}

TEST_CASE("HDF5 is refused to other threads while a checkpoint is completed", "[checkpoint]") {
  const TemporaryDirectory run;
  SelfHostComm comm;
  std::promise<void> reached;
  std::promise<void> go;
  SaveOptions options;
  options.fault = [&](std::string_view point, int64_t) {
    if (point == "before_manifest") {
      reached.set_value();
      go.get_future().wait();
    }
  };
  const std::vector<NamedTensor> state = global_state(9);
  AsyncSaver saver(comm, options, kStagingBytes);
  saver.begin(run.path(), content_for_background(state, 10));
  std::future<void> is_there = reached.get_future();
  while (is_there.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    CHECK_FALSE(saver.poll());
  }
  CHECK_THROWS_WITH(hdf5::create_file(run.path() / "other.h5"), ContainsSubstring("finish the save first"));
  go.set_value();
  CHECK(saver.finish());
  CHECK_NOTHROW(hdf5::create_file(run.path() / "other.h5"));
}

TEST_CASE("the staging ring gives out each byte once", "[checkpoint]") {
  StagingRing ring(1024);
  CHECK(ring.take(100) == 0);  // rounded to 128
  CHECK(ring.take(512) == 128);
  CHECK(ring.take(384) == 640);
  CHECK_FALSE(ring.take(1));
  ring.give_back(128);  // not the oldest: no room yet
  CHECK_FALSE(ring.take(64));
  ring.give_back(0);
  CHECK(ring.take(512) == 0);
  CHECK(ring.take(128) == 512);
  CHECK_FALSE(ring.take(1));  // the front of what is left lies right behind
  ring.give_back(640);
  CHECK_FALSE(ring.take(512));  // 384 at the end, nothing at the front
  CHECK(ring.take(384) == 640);
  CHECK(ring.used() == 1024);
  ring.give_back(0);
  ring.give_back(512);
  ring.give_back(640);
  CHECK(ring.used() == 0);
  CHECK(ring.take(1024) == 0);
  CHECK_THROWS_AS(ring.take(1025), Error);
}
