// See manifest.h.
#include "checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/json_shapes.h"
#include "checkpoint/stored_chunks.h"
#include "storage/atomic_write.h"

namespace longhaul {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr std::string_view kFormat = "longhaul checkpoint";
constexpr int64_t kFormatVersion = 1;
constexpr int64_t kCompressedVersion = 2;  // written where a piece is compressed, so that a program that knows no chunks says so
// The text begins with exactly this, then 16 hexadecimal digits.
constexpr std::string_view kPrefix = "{\n \"manifest_xxh3\": \"";
constexpr std::string_view kZeros = "0000000000000000";

json parse_object(const std::string& text, const char* what) {
  try {
    json value = json::parse(text);
    if (value.is_object()) {
      return value;
    }
  } catch (const json::exception&) {  // reported below, like any other text that is not an object
  }
  throw CheckpointError("the checkpoint's {} must be a JSON object, got \"{}\"", what, text);
}

bool has_chunks(const Manifest& manifest) {
  return std::any_of(manifest.tensors.begin(), manifest.tensors.end(), [](const auto& entry) {
    return std::any_of(entry.second.pieces.begin(), entry.second.pieces.end(), [](const StoredPiece& p) { return !p.chunks.empty(); });
  });
}

ordered_json tensors_to_json(const Manifest& manifest) {
  ordered_json tensors = ordered_json::array();
  for (const auto& [name, tensor] : manifest.tensors) {
    ordered_json pieces = ordered_json::array();
    for (const StoredPiece& piece : tensor.pieces) {
      pieces.push_back(piece_to_json(piece));
    }
    tensors.push_back({{"name", name},
                       {"dtype", to_string(tensor.spec.dtype)},
                       {"shape", shape_to_json(tensor.spec.shape)},
                       {"pieces", std::move(pieces)}});
  }
  return tensors;
}

CheckpointInfo info_from_json(const json& root) {
  return {.step = root.at("step").get<int64_t>(),
          .stage = root.at("stage").get<std::string>(),
          .tokens = root.at("tokens").get<int64_t>(),
          .role = root.at("stage_final").get<bool>() ? CheckpointRole::StageFinal : CheckpointRole::Periodic,
          .recipe = root.at("recipe").get<std::string>(),
          .versions = root.at("versions").dump(),
          .layout = root.at("layout").dump()};
}

StoredTensor tensor_from_json(const json& entry, const Manifest& manifest) {
  StoredTensor tensor{.spec = {.dtype = dtype_from_text(entry.at("dtype").get<std::string>()),
                               .shape = shape_from_json(entry.at("shape"))}};
  std::vector<Block> blocks;
  for (const json& piece : entry.at("pieces")) {
    tensor.pieces.push_back(piece_from_json(piece));
    blocks.push_back(tensor.pieces.back().block);
    if (const std::string problem = chunks_problem(tensor.pieces.back(), size_of(tensor.spec.dtype)); !problem.empty()) {
      throw CheckpointError("{}", problem);
    }
    if (!manifest.files.contains(tensor.pieces.back().file)) {
      throw CheckpointError("it has a piece in the file {}, which is not listed", tensor.pieces.back().file);
    }
  }
  if (const std::string problem = coverage_problem(tensor.spec.shape, blocks); !problem.empty()) {
    throw CheckpointError("{}", problem);
  }
  return tensor;
}

Manifest manifest_from_json(const json& root) {
  const auto version = root.at("format_version").get<int64_t>();
  if (root.at("format").get<std::string>() != kFormat || (version != kFormatVersion && version != kCompressedVersion)) {
    throw CheckpointError("it is of the format {} version {}; this program reads {} versions {} and {}", root.at("format").dump(), version,
                          kFormat, kFormatVersion, kCompressedVersion);
  }
  Manifest manifest{.info = info_from_json(root)};
  for (const json& file : root.at("files")) {
    const FileHash hash{.bytes = file.at("bytes").get<int64_t>(),
                        .hash = hash_from_text(file.at("xxh3").get<std::string>(), ErrorKind::Checkpoint)};
    const auto name = file.at("name").get<std::string>();
    if (name.empty() || name.find('/') != std::string::npos || name.front() == '.') {
      throw CheckpointError("it lists \"{}\", which is no file of a checkpoint", name);
    }
    manifest.files.emplace(name, hash);
  }
  for (const json& entry : root.at("tensors")) {
    const auto name = entry.at("name").get<std::string>();
    try {
      manifest.tensors.emplace(name, tensor_from_json(entry, manifest));
    } catch (const CheckpointError& error) {
      throw CheckpointError("tensor \"{}\": {}", name, error.what());
    }
  }
  manifest.documents = documents_from_json(root.at("documents"));
  for (const json& documents : root.at("rank_documents")) {
    manifest.rank_documents.push_back(documents_from_json(documents));
  }
  return manifest;
}

// The hash of the text with zeros in the hash's own place.
uint64_t hash_without_itself(std::string text) {
  text.replace(kPrefix.size(), kZeros.size(), kZeros);
  return hash_text(text);
}

// The parser needs no stack for nested values, but writing one again does: a document of a million brackets must not end us.
void expect_shallow(std::string_view text) {
  constexpr int kDeepest = 64;
  int depth = 0;
  bool is_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_string) {
      i += c == '\\' ? 1 : 0;
      is_string = c != '"';
    } else if (c == '"') {
      is_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) {
        throw CheckpointError("it is nested more than {} deep", kDeepest);
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  ordered_json files = ordered_json::array();
  for (const auto& [name, file] : manifest.files) {
    files.push_back({{"name", name}, {"bytes", file.bytes}, {"xxh3", hash_to_text(file.hash)}});
  }
  ordered_json rank_documents = ordered_json::array();
  for (const JsonDocuments& documents : manifest.rank_documents) {
    rank_documents.push_back(documents_to_json(documents));
  }
  const CheckpointInfo& info = manifest.info;
  const ordered_json root{{"manifest_xxh3", kZeros},
                          {"format", kFormat},
                          {"format_version", has_chunks(manifest) ? kCompressedVersion : kFormatVersion},
                          {"step", info.step},
                          {"stage", info.stage},
                          {"stage_final", info.role == CheckpointRole::StageFinal},
                          {"tokens", info.tokens},
                          {"versions", parse_object(info.versions, "versions")},
                          {"layout", parse_object(info.layout, "layout")},
                          {"files", std::move(files)},
                          {"documents", documents_to_json(manifest.documents)},
                          {"rank_documents", std::move(rank_documents)},
                          {"tensors", tensors_to_json(manifest)},
                          {"recipe", info.recipe}};
  std::string text = root.dump(1) + "\n";
  LH_CHECK(text.starts_with(kPrefix), "the manifest begins with \"{}\"", text.substr(0, 40));
  text.replace(kPrefix.size(), kZeros.size(), hash_to_text(hash_text(text)));
  return text;
}

Manifest parse_manifest(std::string_view text, const std::filesystem::path& path) {
  if (!text.starts_with(kPrefix) || text.size() < kPrefix.size() + kZeros.size()) {
    throw CheckpointError("{} is not the manifest of a checkpoint, or its beginning is damaged", path.string());
  }
  const std::string_view stored = text.substr(kPrefix.size(), kZeros.size());
  if (hash_to_text(hash_without_itself(std::string(text))) != stored) {
    throw CheckpointError("{} is damaged or was edited: its hash is not the one it names", path.string());
  }
  try {
    expect_shallow(text);
    return manifest_from_json(json::parse(text));
  } catch (const json::exception& error) {
    throw CheckpointError("{} is not a manifest that this program understands: {}", path.string(), error.what());
  } catch (const CheckpointError& error) {
    throw CheckpointError("{} cannot be used: {}", path.string(), error.what());
  }
}

Manifest read_manifest(const std::filesystem::path& directory) {
  const auto path = directory / kManifestName;
  if (!std::filesystem::is_directory(directory)) {
    throw CheckpointError("{} is not a directory; wanted a checkpoint", directory.string());
  }
  if (!std::filesystem::exists(path)) {
    throw CheckpointError("{} is not a complete checkpoint: it has no {}, which a save writes last", directory.string(),
                          kManifestName);
  }
  return parse_manifest(read_text(path, ErrorKind::Checkpoint, int64_t{64} << 30), path);
}

}  // namespace longhaul
