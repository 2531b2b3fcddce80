// The `data:` section of a recipe.
//
//   data:
//     train: [{path: data/web, weight: 0.7}, {path: data/code, weight: 0.3}]
//     validation: [{path: data/held_out}]
//
// describe() lists every key once, for whatever visitor reads, prints or documents recipes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/sampler.h"

namespace longhaul {

struct DataSourceOptions {
  std::string path;
  double weight = 1.0;
};

template <class V>
void describe(V& v, DataSourceOptions& o) {
  v.field("path", o.path, "Megatron prefix (PATH.bin with PATH.idx) or an llm.c .bin file").required().not_empty();
  v.field("weight", o.weight, "share of the tokens, relative to the other sources; 0 keeps the source but does not use it")
      .non_negative();
}

struct DataOptions {
  std::vector<DataSourceOptions> train;
  std::vector<DataSourceOptions> validation;
  Shuffle shuffle = Shuffle::Documents;
  std::optional<int64_t> seed;            // run.seed when absent
  std::optional<int64_t> document_token;  // the usual one of the format when absent
};

template <class V>
void describe(V& v, DataOptions& o) {
  v.field("train", o.train, "sources that are mixed by weight");
  v.field("validation", o.validation, "sources of the validation loss, read from their start every time");
  v.field("shuffle", o.shuffle, "order of the documents: a new shuffle every epoch, or as stored");
  v.field("seed", o.seed, "seed of the shuffle; run.seed when absent").non_negative();
  v.field("document_token", o.document_token, "llm.c files: the token that begins a document, when not 50256 or 128000")
      .non_negative();
}

}  // namespace longhaul
