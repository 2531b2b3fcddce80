// See shards.h.
#include "convert/shards.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "storage/safetensors.h"

namespace longhaul {

namespace {

// Half of what the format allows for a header: entries are only estimated.
constexpr int64_t kMaxHeaderBytes = 50'000'000;

}  // namespace

std::vector<Shard> cut_into_shards(const std::vector<ShardedSize>& tensors, int64_t max_bytes) {
  std::vector<Shard> shards{{}};
  int64_t bytes = 0;
  int64_t header = 0;
  for (const ShardedSize& size : tensors) {
    Shard& last = shards.back();
    const bool is_full = bytes + size.bytes > max_bytes || header + size.header_bytes > kMaxHeaderBytes;
    if (is_full && last.last > last.first) {
      shards.push_back({.first = last.last, .last = last.last});
      bytes = header = 0;
    }
    ++shards.back().last;
    bytes += size.bytes;
    header += size.header_bytes;
  }
  return shards;
}

std::string shard_name(int64_t shard, int64_t count) {
  return count == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, count);
}

int64_t parse_size(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, int64_t>, 9> kUnits{{{"", 1}, {"B", 1},
                                                                       {"KB", 1'000}, {"MB", 1'000'000}, {"GB", 1'000'000'000},
                                                                       {"TB", 1'000'000'000'000}, {"KiB", int64_t{1} << 10},
                                                                       {"MiB", int64_t{1} << 20}, {"GiB", int64_t{1} << 30}}};
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  for (const auto& [name, factor] : kUnits) {
    int64_t bytes = 0;
    if (error == std::errc() && number > 0 && unit == name && !__builtin_mul_overflow(number, factor, &bytes)) {
      return bytes;
    }
  }
  throw RecipeError("\"{}\" is no size; give a whole number and B, KB, MB, GB, TB, KiB, MiB or GiB, such as 5GB", text);
}

std::string index_of_written(const std::filesystem::path& directory, int64_t shards) {
  std::map<std::string, std::string> files;
  int64_t total = 0;
  for (int64_t shard = 0; shard < shards; ++shard) {
    const SafetensorsFile file(directory / shard_name(shard, shards));
    for (const auto& [name, entry] : file.entries()) {
      const auto [where, is_new] = files.emplace(name, file.path().filename().string());
      if (!is_new) {
        throw ConversionError("{} was written to {} and to {}", name, where->second, file.path().filename().string());
      }
      total += static_cast<int64_t>(entry.data.size());
    }
  }
  // Not an ordered_json: one that keeps the order of its keys searches them at every insertion, minutes for half a million.
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(files)}};
  return index.dump(2) + "\n";
}

}  // namespace longhaul
