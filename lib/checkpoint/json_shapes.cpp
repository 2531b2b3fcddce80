// See json_shapes.h.
#include "checkpoint/json_shapes.h"

#include <algorithm>

namespace longhaul {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {
constexpr int64_t kMaxElements = int64_t{1} << 56;  // so that bytes and sums of positions fit into 63 bits
}

ordered_json shape_to_json(const Shape& shape) {
  ordered_json list = ordered_json::array();
  for (int d = 0; d < shape.rank(); ++d) {
    list.push_back(shape[d]);
  }
  return list;
}

Shape shape_from_json(const json& value) {
  Shape shape;
  int64_t elements = 1;
  for (const int64_t size : value.get<std::vector<int64_t>>()) {
    if (size < 0 || shape.rank() == Shape::kMaxRank || __builtin_mul_overflow(elements, std::max<int64_t>(size, 1), &elements) ||
        elements > kMaxElements) {
      throw CheckpointError("{} is not a shape", value.dump());
    }
    shape.append(size);
  }
  return shape;
}

DType dtype_from_text(const std::string& text) {
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::I64, DType::I32, DType::U8}) {
    if (text == to_string(dtype)) {
      return dtype;
    }
  }
  throw CheckpointError("unknown dtype \"{}\"", text);
}

ordered_json piece_to_json(const StoredPiece& piece) {
  ordered_json result{{"file", piece.file},
                      {"dataset", piece.dataset},
                      {"offset", piece.block.offset},
                      {"shape", shape_to_json(piece.block.shape)},
                      {"file_offset", piece.file_offset},
                      {"xxh3", hash_to_text(piece.hash)}};
  if (!piece.chunks.empty()) {
    result["chunk_shape"] = shape_to_json(piece.chunk_shape);
    for (const StoredChunk& chunk : piece.chunks) {
      result["chunks"].push_back({chunk.file_offset, chunk.bytes, hash_to_text(chunk.hash)});
    }
  }
  return result;
}

StoredPiece piece_from_json(const json& value) {
  StoredPiece piece{.block = {.offset = value.at("offset").get<std::vector<int64_t>>(), .shape = shape_from_json(value.at("shape"))},
                    .file = value.at("file").get<std::string>(),
                    .dataset = value.at("dataset").get<std::string>(),
                    .file_offset = value.at("file_offset").get<int64_t>(),
                    .hash = hash_from_text(value.at("xxh3").get<std::string>(), ErrorKind::Checkpoint)};
  if (value.contains("chunks")) {
    piece.chunk_shape = shape_from_json(value.at("chunk_shape"));
    for (const json& chunk : value.at("chunks")) {
      piece.chunks.push_back({.file_offset = chunk.at(0).get<int64_t>(), .bytes = chunk.at(1).get<int64_t>(),
                              .hash = hash_from_text(chunk.at(2).get<std::string>(), ErrorKind::Checkpoint)});
    }
  }
  const auto is_position = [](int64_t number) { return number >= 0 && number <= kMaxElements; };
  if (!std::all_of(piece.block.offset.begin(), piece.block.offset.end(), is_position) ||
      !(is_position(piece.file_offset) || (piece.file_offset == -1 && (piece.block.shape.numel() == 0 || !piece.chunks.empty())))) {
    throw CheckpointError("{} is not a piece of a tensor", value.dump());
  }
  return piece;
}

ordered_json documents_to_json(const JsonDocuments& documents) {
  ordered_json object = ordered_json::object();
  for (const auto& [name, text] : documents) {
    try {
      object[name] = ordered_json::parse(text);
    } catch (const json::exception& error) {
      throw CheckpointError("the document \"{}\" is not JSON: {}", name, error.what());
    }
  }
  return object;
}

JsonDocuments documents_from_json(const json& value) {
  JsonDocuments documents;
  for (const auto& [name, document] : value.items()) {
    documents.emplace(name, document.dump());
  }
  return documents;
}

}  // namespace longhaul
