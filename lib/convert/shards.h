// Cutting a list of tensors into safetensors files of a limited size, and the index that says where each tensor is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

// Entries [first, last) of the list of tensors.
struct Shard {
  int64_t first = 0;
  int64_t last = 0;
};

struct ShardedSize {
  int64_t bytes = 0;         // of data
  int64_t header_bytes = 0;  // estimate; a file's header is limited, too
};
// In order; a tensor larger than the limit has a shard of its own. At least one shard.
[[nodiscard]] std::vector<Shard> cut_into_shards(const std::vector<ShardedSize>& tensors, int64_t max_bytes);

// "model.safetensors", or "model-00001-of-00096.safetensors" where there are several.
[[nodiscard]] std::string shard_name(int64_t shard, int64_t count);

// "5GB", "500MB", "2GiB", "100000": decimal units as in the transformers library. RecipeError for anything else.
[[nodiscard]] int64_t parse_size(std::string_view text);

// Reads the headers of the shards that were written and returns the text of model.safetensors.index.json: what the files
// hold, not what was meant to be written. ConversionError when a file cannot be read or a tensor is in two.
[[nodiscard]] std::string index_of_written(const std::filesystem::path& directory, int64_t shards);

}  // namespace longhaul
