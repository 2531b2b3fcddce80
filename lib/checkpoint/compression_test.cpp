// Compressed checkpoints hold what uncompressed ones do, at every layout, for this program and for HDF5.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "checkpoint/async_save.h"
#include "checkpoint/checkpoint_test_support.h"
#include "checkpoint/directory_names.h"
#include "checkpoint/stored_chunks.h"
#include "storage/hdf5.h"
#include "storage/temporary_directory.h"

using namespace longhaul;
using namespace longhaul::checkpoint_test;
using Catch::Matchers::ContainsSubstring;

namespace {

// Beside the small state, tensors of several chunks: cut along the first dimension, and along the second, because a single row
// is more than a chunk.
std::vector<NamedTensor> state_of_many_chunks() {
  std::vector<NamedTensor> state = global_state(1);
  for (const auto& [name, shape] : {std::pair("model/rows", Shape{13, 700, 500}), std::pair("model/wide_rows", Shape{4, 3000, 1000})}) {
    Tensor tensor(DType::F32, shape);
    for (size_t i = 0; i < tensor.values<float>().size(); ++i) {
      tensor.values<float>()[i] = static_cast<float>(i % 9973) * 1e-3F;
    }
    state.push_back({name, std::move(tensor)});
  }
  return state;
}

void clear(const std::vector<NamedTensor>& state) {
  for (const NamedTensor& entry : state) {
    if (entry.tensor.view().bytes() > 0) {
      std::memset(entry.tensor.view().raw(), 0x55, static_cast<size_t>(entry.tensor.view().bytes()));
    }
  }
}

}  // namespace

TEST_CASE("a compressed checkpoint loads bit by bit at every layout", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = state_of_many_chunks();
  const SaveOptions options{.compression = Compression::Zstd};
  for (const int saved_on : {1, 2}) {
    std::vector<int64_t> bytes(2);
    run_ranks(saved_on, [&](HostComm& comm, int rank) {
      const CheckpointContent content = content_of(state, 10, rank, saved_on);
      bytes[0] = save_checkpoint(comm, run.path() / "plain", content).bytes;
      bytes[1] = save_checkpoint(comm, run.path() / "compressed", content, options).bytes;
    });
    CHECK(bytes[1] < bytes[0] / 2);  // these values repeat
    const auto path = run.path() / "compressed/checkpoints/step_00000010";
    const Manifest plain = read_manifest(run.path() / "plain/checkpoints/step_00000010");
    const Manifest compressed = read_manifest(path);
    CHECK(compressed.tensors.at("model/rows").pieces[0].chunks.size() > 1);
    for (const auto& [name, tensor] : plain.tensors) {
      CHECK(compressed.tensors.at(name).pieces[0].hash == tensor.pieces[0].hash);
    }
    for (const int loaded_on : {1, 2, 4}) {
      CAPTURE(saved_on, loaded_on);
      const std::vector<NamedTensor> loaded = state_of_many_chunks();
      clear(loaded);
      run_ranks(loaded_on, [&](HostComm& comm, int rank) {
        CheckpointReader reader = open_checkpoint(comm, path);
        load_tensors(comm, reader, {.pieces = pieces_of(loaded, rank, loaded_on)});
      });
      CHECK(same_state(loaded, state));
    }
  }
}

TEST_CASE("blocks across the borders of chunks are read", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = state_of_many_chunks();
  CheckpointReader reader(save_alone(run.path(), state, 10, {.compression = Compression::Zstd}).path);
  for (const NamedTensor& entry : state) {
    const TensorView whole = entry.tensor;
    if (!entry.name.starts_with("model/") || whole.rank() != 3 || whole.numel() < 1000) {
      continue;
    }
    const std::vector<int64_t> offset{1, whole.size(1) / 3, 7};
    const TensorView wanted = whole.slice(0, 1, whole.size(0)).slice(1, offset[1], whole.size(1)).slice(2, 7, whole.size(2) - 5);
    const Tensor back(DType::F32, wanted.shape());
    reader.read(entry.name, offset, back);
    const Tensor expected(DType::F32, wanted.shape());
    copy_strided(wanted, expected);
    CHECK(std::memcmp(back.view().raw(), expected.view().raw(), static_cast<size_t>(back.view().bytes())) == 0);
  }
}

TEST_CASE("HDF5 reads compressed tensors through the index", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = state_of_many_chunks();
  run_ranks(2, [&](HostComm& comm, int rank) {
    save_checkpoint(comm, run.path(), content_of(state, 10, rank, 2), {.compression = Compression::Zstd});
  });
  hdf5::register_zstd_filter();
  const hdf5::File index = hdf5::open_file(run.path() / "checkpoints/step_00000010/index.h5");
  for (const NamedTensor& entry : state) {
    CAPTURE(entry.name);
    const Tensor back(entry.tensor.view().dtype(), entry.tensor.view().shape());
    hdf5::read_dataset(index, entry.name, back);
    CHECK((back.view().bytes() == 0 ||
           std::memcmp(back.view().raw(), entry.tensor.view().raw(), static_cast<size_t>(back.view().bytes())) == 0));
  }
}

TEST_CASE("a background save compresses, and equal tensors make equal chunks", "[checkpoint]") {
  const TemporaryDirectory run;
  const std::vector<NamedTensor> state = state_of_many_chunks();
  std::vector<std::filesystem::path> paths;
  for (const char* name : {"a", "b"}) {
    const std::vector<NamedTensor> live = state_of_many_chunks();
    SelfHostComm comm;
    AsyncSaver saver(comm, {.compression = Compression::Zstd}, int64_t{16} << 20);
    CheckpointContent content = content_of(live, 10);
    for (Piece& piece : content.pieces) {
      piece.stability = Stability::UntilRelease;
    }
    saver.begin(run.path() / name, std::move(content));
    saver.release_tensors();
    clear(live);
    paths.push_back(saver.finish()->saved.path);
    CheckpointReader reader = open_checkpoint(comm, paths.back());
    load_tensors(comm, reader, {.pieces = pieces_of(live, 0, 1)});
    CHECK(same_state(live, state));
  }
  const Manifest b = read_manifest(paths[1]);
  for (const auto& [name, tensor] : read_manifest(paths[0]).tensors) {
    CAPTURE(name);
    const StoredPiece& one = tensor.pieces.front();
    const StoredPiece& other = b.tensors.at(name).pieces.front();
    REQUIRE(one.chunks.size() == other.chunks.size());
    for (size_t i = 0; i < one.chunks.size(); ++i) {
      CHECK(one.chunks[i].file_offset == other.chunks[i].file_offset);
      CHECK(one.chunks[i].hash == other.chunks[i].hash);
    }
  }
}

TEST_CASE("a table of chunks that does not fit its piece is refused", "[checkpoint]") {
  StoredPiece piece{.block = {.offset = {0, 0}, .shape = {10, 6}}, .chunk_shape = {4, 6}};
  piece.chunks.assign(3, {.file_offset = 100, .bytes = 50, .hash = 0});
  CHECK(chunks_problem(piece, 4).empty());
  const auto problem = [&](auto&& change) {
    StoredPiece other = piece;
    change(other);
    return chunks_problem(other, 4);
  };
  CHECK_THAT(problem([](StoredPiece& p) { p.chunks.pop_back(); }), ContainsSubstring("2 chunks"));
  CHECK_FALSE(problem([](StoredPiece& p) { p.chunk_shape = {4, 0}; }).empty());
  CHECK_FALSE(problem([](StoredPiece& p) { p.chunk_shape = {4}; }).empty());
  CHECK_FALSE(problem([](StoredPiece& p) { p.chunk_shape = {}; }).empty());
  CHECK_FALSE(problem([](StoredPiece& p) { p.chunk_shape = {int64_t{1} << 40, 6}; }).empty());
  CHECK_FALSE(problem([](StoredPiece& p) { p.chunks[1].file_offset = -1; }).empty());
  CHECK_FALSE(problem([](StoredPiece& p) { p.chunks[1].bytes = int64_t{1} << 50; }).empty());
}
