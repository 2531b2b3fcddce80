// A small training state, cut over two ranks in several ways, that the tests of this folder save and load.
#pragma once

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/philox.h"
#include "checkpoint/content.h"
#include "checkpoint/load.h"
#include "checkpoint/reader.h"
#include "checkpoint/save.h"
#include "comm/self_host_comm.h"
#include "comm/thread_host_comm.h"
#include "tensor/tensor.h"

namespace longhaul::checkpoint_test {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// Any bits: NaNs with payload, infinities and subnormals are state too.
inline std::vector<NamedTensor> global_state(uint64_t seed) {
  const std::vector<std::pair<std::string, TensorSpec>> specs{
      {"model/layers.0.self_attn.q_proj.weight", {DType::BF16, {6, 8}}},
      {"model/layers.1.mlp.experts.down_proj", {DType::F32, {4, 3, 5}}},
      {"model/norm.weight", {DType::F32, {8}}},
      {"optimizer/m/layers.0.self_attn.q_proj.weight", {DType::F32, {6, 8}}},
      {"optimizer/v/layers.0.self_attn.q_proj.weight", {DType::F64, {6, 8}}},
      {"balance/layers.1/bias", {DType::F32, {4}}},
      {"balance/layers.1/histogram", {DType::I64, {4, 10}}},
      {"balance/layers.1/count", {DType::I32, {}}},
      {"model/wide", {DType::F32, {80, 30}}},  // large enough to be compressed
      {"empty", {DType::F32, {0, 3}}},
      {"bytes", {DType::U8, {13}}},
  };
  std::vector<NamedTensor> state;
  for (const auto& [name, spec] : specs) {
    Tensor tensor(spec);
    const RandomStream random{.seed = seed, .stream = stream_id(name.c_str())};
    auto* bytes = static_cast<uint8_t*>(tensor.view().raw());
    for (int64_t i = 0; i < tensor.view().bytes(); ++i) {
      bytes[i] = static_cast<uint8_t>(random.words(static_cast<uint64_t>(i))[0]);
    }
    state.push_back({name, std::move(tensor)});
  }
  return state;
}

// The same names and sizes, all zeros.
inline std::vector<NamedTensor> blank_state() {
  std::vector<NamedTensor> state = global_state(0);
  for (NamedTensor& entry : state) {
    if (entry.tensor.view().bytes() > 0) {
      std::memset(entry.tensor.view().raw(), 0, static_cast<size_t>(entry.tensor.view().bytes()));
    }
  }
  return state;
}

inline bool same_state(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const TensorView x = a[i].tensor;
    const TensorView y = b[i].tensor;
    if (a[i].name != b[i].name || x.spec() != y.spec() ||
        (x.bytes() > 0 && std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.bytes())) != 0)) {
      return false;
    }
  }
  return a.size() == b.size();
}

inline Piece block_of(const NamedTensor& entry, std::vector<int64_t> begin, const std::vector<int64_t>& end) {
  TensorView view = entry.tensor;
  for (int d = 0; d < view.rank(); ++d) {
    view = view.slice(d, begin[static_cast<size_t>(d)], end[static_cast<size_t>(d)]);
  }
  return {.name = entry.name, .global_shape = entry.tensor.view().shape(), .offset = std::move(begin), .data = view};
}

// All of dimension `dim` from `begin` to `end`.
inline Piece slab_of(const NamedTensor& entry, int dim, int64_t begin, int64_t end) {
  Piece piece = whole_piece(entry.name, entry.tensor);
  piece.offset[static_cast<size_t>(dim)] = begin;
  piece.data = piece.data.slice(dim, begin, end);
  return piece;
}

// Rank `rank` of `size` owns: rows of matrices, and every size-th of what cannot be cut. With two ranks, the first tensor
// is cut by columns, so that its pieces are strided, and the second into three blocks of which rank 0 has two.
inline std::vector<Piece> pieces_of(const std::vector<NamedTensor>& state, int rank, int size) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < state.size(); ++i) {
    const TensorView view = state[i].tensor;
    if (size == 2 && i == 0) {
      pieces.push_back(slab_of(state[i], 1, rank == 0 ? 0 : 3, rank == 0 ? 3 : 8));
    } else if (size == 2 && i == 1 && rank == 0) {
      pieces.push_back(block_of(state[i], {0, 0, 0}, {2, 3, 2}));
      pieces.push_back(block_of(state[i], {2, 0, 0}, {4, 3, 5}));
    } else if (size == 2 && i == 1) {
      pieces.push_back(block_of(state[i], {0, 0, 2}, {2, 3, 5}));
    } else if (view.rank() > 0 && view.size(0) >= size) {
      const int64_t rows = view.size(0);
      pieces.push_back(slab_of(state[i], 0, rows * rank / size, rows * (rank + 1) / size));
    } else if (static_cast<int>(i) % size == rank) {
      pieces.push_back(whole_piece(state[i].name, state[i].tensor));
    }
  }
  return pieces;
}

inline CheckpointContent content_of(const std::vector<NamedTensor>& state, int64_t step, int rank = 0, int size = 1) {
  return {.info = {.step = step,
                   .stage = "8k",
                   .tokens = step * 1000,
                   .recipe = "run: {name: test}\n",
                   .versions = R"({"longhaul": "0.1.0"})",
                   .layout = fmt::format(R"({{"data": {}}})", size)},
          .pieces = pieces_of(state, rank, size),
          .documents = {{"data", R"({"cursor": 12345678901234567, "fraction": 0.1})"}, {"counters", R"({"step": 7})"}},
          .rank_documents = {{"packing", fmt::format(R"({{"rank": {}}})", rank)}}};
}

inline SavedCheckpoint save_alone(const std::filesystem::path& run, const std::vector<NamedTensor>& state, int64_t step,
                                  const SaveOptions& options = {}) {
  SelfHostComm comm;
  return save_checkpoint(comm, run, content_of(state, step), options);
}

// Verifies and loads everything on `size` ranks, each into its own pieces of the returned state.
inline std::vector<NamedTensor> load_state(const std::filesystem::path& checkpoint, int size = 1) {
  std::vector<NamedTensor> state = blank_state();
  run_ranks(size, [&](HostComm& comm, int rank) {
    CheckpointReader reader = open_checkpoint(comm, checkpoint);
    load_tensors(comm, reader, {.pieces = pieces_of(state, rank, size)});
  });
  return state;
}

inline const auto kIgnore = [](const std::string&) {};

// The message of the CheckpointError that `work` throws on each of two ranks.
inline std::vector<std::string> errors_on_two_ranks(const std::function<void(HostComm&, int)>& work) {
  std::vector<std::string> errors(2);
  run_ranks(2, [&](HostComm& comm, int rank) {
    try {
      work(comm, rank);
    } catch (const CheckpointError& error) {
      errors[static_cast<size_t>(rank)] = error.what();
    }
  });
  return errors;
}

}  // namespace longhaul::checkpoint_test
