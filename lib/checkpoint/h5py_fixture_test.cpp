// Writes what index_h5py_test.py reads back: a checkpoint of two ranks in the working directory, and beside it the bytes
// of every tensor. Hidden, because it is only one half of a test.
#include <catch2/catch_test_macros.hpp>

#include "checkpoint/checkpoint_test_support.h"
#include "storage/atomic_write.h"

using namespace longhaul;
using namespace longhaul::checkpoint_test;

TEST_CASE("write a checkpoint for h5py", "[.h5py]") {
  const std::vector<NamedTensor> state = global_state(11);
  run_ranks(2, [&](HostComm& comm, int rank) { save_checkpoint(comm, ".", content_of(state, 10, rank, 2)); });
  std::string table;
  for (size_t i = 0; i < state.size(); ++i) {
    const TensorView view = state[i].tensor;
    const std::string file = fmt::format("tensor_{}.bin", i);
    StagedFile bytes(file, ErrorKind::Checkpoint);
    bytes.write(std::span(static_cast<const std::byte*>(view.raw()), static_cast<size_t>(view.bytes())));
    bytes.publish();
    table += fmt::format("{} {} {} {}\n", file, state[i].name, to_string(view.dtype()), view.shape().to_string());
  }
  write_text_atomically("tensors.txt", table, ErrorKind::Checkpoint);
}
