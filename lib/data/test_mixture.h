// A mixture of three sources, and the ways in which tests read and save it.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "base/philox.h"
#include "data/data_loader.h"
#include "data/test_corpus.h"

namespace longhaul::testing {

// Three sources of uneven documents, with tokens that tell them apart.
struct Mixed {
  TemporaryFolder folder;
  std::vector<TestSource> list;

  Mixed() {
    const RandomStream stream{.seed = 5, .stream = stream_id("lengths")};
    int32_t first = 0;
    for (int s = 0; s < 3; ++s) {
      std::vector<int64_t> lengths;
      for (uint64_t i = 0; i < 23; ++i) {
        lengths.push_back(static_cast<int64_t>(stream.below(100 * static_cast<uint64_t>(s) + i, i % 5 == 0 ? 70 : 9)));
      }
      const auto prefix = folder / fmt::format("source{}", s);
      write_corpus(prefix, numbered_documents(lengths, first));
      first += 10000;
      list.push_back({prefix, s == 0 ? 2.0 : 1.0});
    }
  }
  [[nodiscard]] DataLoader loader(int64_t sequence_length = 16, uint64_t seed = 42) const {
    return {open_all(list), {.sequence_length = sequence_length, .seed = seed}};
  }
};

[[nodiscard]] inline std::vector<Sequence> take(DataLoader& loader, int64_t sequences) {
  std::vector<Sequence> result;
  for (const SequencePlan& plan : loader.next_batch(sequences)) {
    result.push_back(loader.read(plan));
  }
  return result;
}

// Through the text of a checkpoint.
[[nodiscard]] inline DataState saved(const DataLoader& loader) {
  return data_state_from_json(nlohmann::json::parse(to_json(loader.state()).dump()));
}

}  // namespace longhaul::testing
