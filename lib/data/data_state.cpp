// See data_state.h.
#include "data/data_state.h"

#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace longhaul {

namespace {

constexpr int64_t kVersion = 1;

// A member of an object, with an error that names it.
template <class T>
[[nodiscard]] T member(const nlohmann::json& object, const char* key) {
  try {
    return object.at(key).get<T>();
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError("the data state has no valid \"{}\": {}", key, error.what());
  }
}

[[nodiscard]] int64_t count(const nlohmann::json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_integer() || it->get<int64_t>() < 0) {
    throw CheckpointError("the data state needs a whole number of 0 or more for \"{}\", got {}", key,
                          it == object.end() ? "nothing" : it->dump());
  }
  return it->get<int64_t>();
}

[[nodiscard]] nlohmann::json object_of(const nlohmann::json& json, const char* key) {
  auto value = member<nlohmann::json>(json, key);
  if (!value.is_object()) {
    throw CheckpointError("the data state needs an object for \"{}\"", key);
  }
  return value;
}

[[nodiscard]] nlohmann::json source_to_json(const SourceState& source) {
  return {{"id", source.id},
          {"path", source.path},
          {"fingerprint", to_string(source.fingerprint)},
          {"active", source.is_active},
          {"epoch", source.cursor.epoch},
          {"position", source.cursor.position},
          {"offset", source.cursor.offset},
          {"weight", source.weight},
          {"mixture_tokens", source.mixture_tokens},
          {"total_tokens", source.total_tokens}};
}

[[nodiscard]] SourceState source_from_json(const nlohmann::json& json) {
  if (!json.is_object()) {
    throw CheckpointError("a source of the data state is not an object but {}", json.dump());
  }
  return {.id = count(json, "id"),
          .path = member<std::string>(json, "path"),
          .fingerprint = parse_fingerprint(member<std::string>(json, "fingerprint")),
          .is_active = member<bool>(json, "active"),
          .cursor = {.epoch = count(json, "epoch"), .position = count(json, "position"), .offset = count(json, "offset")},
          .weight = member<double>(json, "weight"),
          .mixture_tokens = count(json, "mixture_tokens"),
          .total_tokens = count(json, "total_tokens")};
}

}  // namespace

nlohmann::json to_json(const DataState& state) {
  const DataCounters& c = state.counters;
  nlohmann::json sources = nlohmann::json::array();
  for (const SourceState& source : state.sources) {
    sources.push_back(source_to_json(source));
  }
  return {{"version", kVersion},
          {"seed", state.seed},
          {"shuffle", enum_name(state.shuffle)},
          {"sequences", state.sequences},
          {"counters",
           {{"used", c.used},
            {"targets", c.targets},
            {"dropped", c.dropped},
            {"padded", c.padded},
            {"segments", c.segments},
            {"documents", c.documents}}},
          {"sources", std::move(sources)}};
}

DataState data_state_from_json(const nlohmann::json& json) {
  if (!json.is_object()) {
    throw CheckpointError("the data state is not a JSON object");
  }
  if (const int64_t version = count(json, "version"); version != kVersion) {
    throw CheckpointError("the data state has version {}; this program reads version {}", version, kVersion);
  }
  const auto shuffle_name = member<std::string>(json, "shuffle");
  const auto shuffle = enum_value<Shuffle>(shuffle_name);
  if (!shuffle) {
    throw CheckpointError("the data state has the unknown shuffle \"{}\"; known are {}", shuffle_name, enum_choices<Shuffle>());
  }
  DataState state{.seed = member<uint64_t>(json, "seed"),
                  .shuffle = *shuffle,
                  .sequences = count(json, "sequences")};
  const auto counters = object_of(json, "counters");
  state.counters = {.used = count(counters, "used"),
                    .targets = count(counters, "targets"),
                    .dropped = count(counters, "dropped"),
                    .padded = count(counters, "padded"),
                    .segments = count(counters, "segments"),
                    .documents = count(counters, "documents")};
  const auto sources = member<nlohmann::json>(json, "sources");
  if (!sources.is_array()) {
    throw CheckpointError("the data state needs a list for \"sources\"");
  }
  for (const auto& source : sources) {
    state.sources.push_back(source_from_json(source));
  }
  return state;
}

uint64_t hash(const DataState& state) {
  DataState nameless = state;
  for (SourceState& source : nameless.sources) {
    source.path.clear();
  }
  const std::string text = to_json(nameless).dump();
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace longhaul
