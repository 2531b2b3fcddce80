// Round trips at several layouts, strictness of loading, documents and retention; errors are in save_errors_test.cpp.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "checkpoint/checkpoint_test_support.h"
#include "checkpoint/directory_names.h"
#include "checkpoint/find.h"
#include "storage/atomic_write.h"
#include "storage/temporary_directory.h"

using namespace longhaul;
using namespace longhaul::checkpoint_test;
using Catch::Matchers::ContainsSubstring;

namespace {

void save_on(int size, const std::filesystem::path& run, const std::vector<NamedTensor>& state, int64_t step) {
  run_ranks(size, [&](HostComm& comm, int rank) { save_checkpoint(comm, run, content_of(state, step, rank, size)); });
}

}  // namespace

TEST_CASE("a state comes back bit for bit at every layout", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = global_state(1);
  for (const int saved_on : {1, 2, 3}) {
    save_on(saved_on, run.path(), state, 10 * saved_on);
    std::vector<int64_t> steps(2);
    run_ranks(2, [&](HostComm& comm, int rank) {
      steps[static_cast<size_t>(rank)] = find_latest_together(comm, run.path(), kIgnore)->step;
    });
    CHECK(steps == std::vector<int64_t>(2, 10 * saved_on));
    const auto found = find_latest(run.path(), kIgnore);
    REQUIRE(found);
    CHECK(found->step == 10 * saved_on);
    for (const int loaded_on : {1, 2, 4}) {
      CAPTURE(saved_on, loaded_on);
      CHECK(same_state(load_state(found->path, loaded_on), state));
    }
  }
  CHECK(names_in(checkpoints_directory(run.path())) ==
        std::vector<std::string>{"latest", "step_00000010", "step_00000020", "step_00000030"});
  CHECK(names_in(run.path() / "checkpoints/step_00000020") ==
        std::vector<std::string>{"index.h5", "manifest.json", "rank_00000.h5", "rank_00001.h5"});
  CHECK(read_text(run.path() / "checkpoints/latest", ErrorKind::Checkpoint) == "step_00000030\n");
}

TEST_CASE("documents and counters come back", "[checkpoint]") {
  const TemporaryDirectory run;
  save_on(2, run.path(), global_state(2), 10);
  const CheckpointReader reader(run.path() / "checkpoints/step_00000010");
  CHECK(reader.info().step == 10);
  CHECK(reader.info().tokens == 10000);
  CHECK(reader.info().stage == "8k");
  CHECK(reader.info().recipe == "run: {name: test}\n");
  CHECK(reader.info().layout == R"({"data":2})");
  CHECK(reader.num_ranks() == 2);
  CHECK(reader.document("data") == R"({"cursor":12345678901234567,"fraction":0.1})");
  CHECK(reader.rank_document(1, "packing") == R"({"rank":1})");
  CHECK_THROWS_WITH(reader.document("rng"), ContainsSubstring("no document \"rng\""));
  CHECK_THROWS_WITH(reader.rank_document(1, "rng"), ContainsSubstring("of rank 1"));
  CHECK_THROWS_WITH(reader.rank_document(2, "packing"), ContainsSubstring("saved by 2 ranks"));
}

TEST_CASE("a piece without memory is filled by its source, in order, in parts of the staging buffer", "[checkpoint]") {
  const TemporaryDirectory run;
  const Shape shape{3, 700, 2000};  // 16.8 MB
  int64_t next = 0;
  int64_t largest = 0;
  CheckpointContent content;
  content.pieces = {whole_piece("counted", TensorView(nullptr, DType::F32, shape))};
  content.pieces[0].source = [&](int64_t first, const TensorView& part) {
    CHECK(first == next);
    for (int64_t i = 0; i < part.numel(); ++i) {
      part.data<float>()[i] = static_cast<float>(first + i);
    }
    next += part.numel();
    largest = std::max(largest, part.bytes());
  };
  SelfHostComm comm;
  const SavedCheckpoint saved = write_checkpoint(comm, run.path() / "streamed", content);
  CHECK(next == shape.numel());
  CHECK(largest <= int64_t{8} << 20);
  CheckpointReader reader = open_checkpoint(comm, saved.path);
  const Tensor back(DType::F32, shape);
  reader.read("counted", std::vector<int64_t>{0, 0, 0}, back);
  int64_t wrong = 0;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    wrong += back.values<float>()[static_cast<size_t>(i)] != static_cast<float>(i) ? 1 : 0;
  }
  CHECK(wrong == 0);

  content.pieces[0].source = [](int64_t, const TensorView&) { throw ConversionError("the source is gone"); };
  CHECK_THROWS_AS(write_checkpoint(comm, run.path() / "failed", content), ConversionError);
  CHECK_FALSE(std::filesystem::exists(run.path() / "failed"));
  CHECK_FALSE(std::filesystem::exists(run.path() / ".failed.inprogress"));
}

TEST_CASE("tensors larger than the staging buffer pass through it", "[checkpoint]") {
  const TemporaryDirectory run;
  Tensor big(DType::F32, {3, 1500, 1000});  // 18 MB; the middle columns are strided
  for (size_t i = 0; i < big.values<float>().size(); ++i) {
    big.values<float>()[i] = static_cast<float>(i % 65537) * 0.5f;
  }
  CheckpointContent content;
  content.pieces = {{.name = "big", .global_shape = {3, 1500, 700}, .offset = {0, 0, 0}, .data = big.view().slice(2, 200, 900)}};
  SelfHostComm comm;
  const SavedCheckpoint saved = write_checkpoint(comm, run.path() / "single/", content);
  CHECK(saved.path == run.path() / "single");
  CHECK(saved.bytes > 3 * 1500 * 700 * 4);
  const Tensor back = Tensor::zeros(DType::F32, {3, 1500, 800});
  CheckpointReader reader(saved.path);
  verify_checkpoint(comm, reader);
  load_tensors(comm, reader, {.pieces = {{.name = "big", .global_shape = {3, 1500, 700}, .offset = {0, 0, 0}, .data = back.view().slice(2, 0, 700)}}});
  for (int64_t row = 0; row < 4500; ++row) {
    const float* got = back.values<float>().data() + row * 800;
    REQUIRE(std::memcmp(got, big.values<float>().data() + row * 1000 + 200, 700 * sizeof(float)) == 0);
    REQUIRE(got[700] == 0);
  }
}

TEST_CASE("what a run needs and what a checkpoint holds must agree", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = global_state(3);
  save_on(2, run.path(), state, 10);
  const auto path = run.path() / "checkpoints/step_00000010";
  const auto load_error = [&](const std::function<void(std::vector<Piece>&)>& change, std::vector<std::string> prefixes = {""}) {
    const std::vector<NamedTensor> target = blank_state();
    const auto errors = errors_on_two_ranks([&](HostComm& comm, int rank) {
      CheckpointReader reader(path);
      std::vector<Piece> pieces = pieces_of(target, rank, 2);
      if (rank == 1) {
        change(pieces);
      }
      load_tensors(comm, reader, {.pieces = pieces, .prefixes = prefixes});
    });
    CHECK(errors[0] == errors[1]);
    CHECK((errors[0].empty() || same_state(target, blank_state())));  // refused before anything was written
    return errors[0];
  };
  CHECK(load_error([](auto&) {}).empty());
  CHECK_THAT(load_error([](auto& pieces) { pieces.push_back(whole_piece("model/new", pieces.front().data)); }),
             ContainsSubstring("missing: model/new;"));
  CHECK_THAT(load_error([](auto& pieces) { pieces.back().name = "other"; }), ContainsSubstring("missing: other;"));
  // The last tensor is cut over both ranks: rank 0 still asks for it. "balance/layers.1/count" is rank 1's alone.
  const auto drop = [](const std::string& name) {
    return [name](std::vector<Piece>& pieces) { std::erase_if(pieces, [&](const Piece& piece) { return piece.name == name; }); };
  };
  CHECK(load_error(drop("bytes")).empty());
  CHECK_THAT(load_error(drop("balance/layers.1/count")), ContainsSubstring("not in this run: balance/layers.1/count"));
  CHECK(load_error(drop("balance/layers.1/count"), {"model/", "optimizer/"}).empty());
  const Tensor wide(DType::F64, {13});
  CHECK_THAT(load_error([&](auto& pieces) { pieces.back() = whole_piece("bytes", wide); }),
             ContainsSubstring("\"bytes\" is u8[13], wanted f64[13]"));
  CHECK_THAT(load_error([](auto& pieces) { pieces.back().global_shape = {14}; }), ContainsSubstring("\"bytes\" is u8[13], wanted u8[14]"));

  CheckpointReader reader(path);
  const std::vector<int64_t> inside{6};
  CHECK_THROWS_WITH(reader.read("bytes", inside, Tensor(DType::U8, {8})), ContainsSubstring("cannot be read"));
  CHECK_THROWS_WITH(reader.read("absent", inside, Tensor(DType::U8, {7})), ContainsSubstring("no tensor \"absent\""));
  CHECK_NOTHROW(reader.read("bytes", inside, Tensor(DType::U8, {7})));
}

TEST_CASE("pieces that overlap, leave gaps or disagree are refused on every rank", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = global_state(4);
  save_on(2, run.path(), state, 10);
  const auto save_error = [&](const std::function<void(std::vector<Piece>&)>& change) {
    const auto errors = errors_on_two_ranks([&](HostComm& comm, int rank) {
      CheckpointContent content = content_of(state, 20, rank, 2);
      if (rank == 1) {
        change(content.pieces);
      }
      save_checkpoint(comm, run.path(), content);
    });
    CHECK(errors[0] == errors[1]);
    CHECK(names_in(checkpoints_directory(run.path())) == std::vector<std::string>{"latest", "step_00000010"});
    return errors[0];
  };
  CHECK_THAT(save_error([](auto& pieces) { pieces.pop_back(); }), ContainsSubstring("\"bytes\"") && ContainsSubstring("6 of its 13"));
  CHECK_THAT(save_error([](auto& pieces) { pieces.push_back(pieces.back()); }), ContainsSubstring("overlap"));
  CHECK_THAT(save_error([](auto& pieces) { pieces.back().global_shape = {14}; }), ContainsSubstring("rank 1 has \"bytes\" as u8[14]"));
  CHECK(same_state(load_state(run.path() / "checkpoints/step_00000010"), state));
}

TEST_CASE("tensors on a device pass through the host", "[checkpoint]") {
  // Memory of the host under the name of a device: whatever touches it except through the transfer would go unnoticed
  // here, so the transfer counts the bytes.
  const TemporaryDirectory run;
  Tensor values(DType::F32, {5, 1000, 700});  // 14 MB: two parts
  for (size_t i = 0; i < values.values<float>().size(); ++i) {
    values.values<float>()[i] = static_cast<float>(i % 9973);
  }
  const Device gpu{.kind = DeviceKind::Cuda, .index = 0};
  int64_t moved = 0;
  const DeviceTransfer transfer = [&](const TensorView& from, const TensorView& to) {
    LH_CHECK((from.device() == gpu) != (to.device() == gpu) && from.is_contiguous() && to.is_contiguous(), "one end is the host");
    LH_CHECK(from.spec() == to.spec(), "{} to {}", from.to_string(), to.to_string());
    std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
    moved += from.bytes();
  };
  SelfHostComm comm;
  CheckpointContent content;
  content.pieces = {whole_piece("x", TensorView(values.view().raw(), DType::F32, values.view().shape(), gpu))};
  const SavedCheckpoint saved = write_checkpoint(comm, run.path() / "device", content, {.copy = transfer});
  CHECK(moved == values.view().bytes());
  const Tensor back = Tensor::zeros(DType::F32, values.view().shape());
  CheckpointReader reader = open_checkpoint(comm, saved.path, transfer);
  load_tensors(comm, reader, {.pieces = {whole_piece("x", TensorView(back.view().raw(), DType::F32, back.view().shape(), gpu))}});
  CHECK(moved == 2 * values.view().bytes());
  CHECK(std::memcmp(back.view().raw(), values.view().raw(), static_cast<size_t>(back.view().bytes())) == 0);
}

TEST_CASE("retention keeps the newest and the ends of stages", "[checkpoint]") {
  const TemporaryDirectory run;
  const auto checkpoints = checkpoints_directory(run.path());
  const std::vector<NamedTensor> state = global_state(9);
  SelfHostComm comm;
  std::filesystem::create_directories(checkpoints / "step_00000001");         // incomplete: neither counted nor removed
  std::filesystem::create_directories(checkpoints / ".step_00000002.inprogress");  // a save that was killed is cleared away
  std::filesystem::create_directories(checkpoints / ".step_00000003.removing");    // a removal that was killed is finished
  for (int64_t step = 10; step <= 60; step += 10) {
    CheckpointContent content = content_of(state, step);
    content.info.role = step == 20 || step == 50 ? CheckpointRole::StageFinal : CheckpointRole::Periodic;
    save_checkpoint(comm, run.path(), content, {.keep = 2});
  }
  CHECK(names_in(checkpoints) == std::vector<std::string>{"latest", "step_00000001", "step_00000020", "step_00000040",
                                                          "step_00000050", "step_00000060"});
  // Continuing from an older one: what is newer belongs to the user.
  save_checkpoint(comm, run.path(), content_of(state, 45), {.keep = 1});
  CHECK(names_in(checkpoints) == std::vector<std::string>{"latest", "step_00000001", "step_00000020", "step_00000045",
                                                          "step_00000050", "step_00000060"});
}

TEST_CASE("major checkpoints are kept for good", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = global_state(10);
  SelfHostComm comm;
  for (int64_t step = 10; step <= 90; step += 10) {
    save_checkpoint(comm, run.path(), content_of(state, step), {.keep = 2, .major_every = 40});
  }
  CHECK(names_in(checkpoints_directory(run.path())) ==
        std::vector<std::string>{"latest", "step_00000040", "step_00000070", "step_00000080", "step_00000090"});
}

TEST_CASE("only names of steps are steps", "[checkpoint]") {
  CHECK(step_name(100) == "step_00000100");
  CHECK(parse_step_name("step_00000100") == 100);
  CHECK(parse_step_name(step_name(1234567890)) == 1234567890);
  for (const char* name : {"step_100", "step_0000010x", "step_-0000100", "step_000000100", "latest", ".step_00000100", ""}) {
    CHECK_FALSE(parse_step_name(name));
  }
  CHECK(strip_hidden(".step_00000100.inprogress", kInProgressSuffix) == "step_00000100");
  CHECK_FALSE(strip_hidden("step_00000100.inprogress", kInProgressSuffix));
  CHECK_FALSE(strip_hidden(".inprogress", kInProgressSuffix));
}
