// See rank_report.h.
#include "checkpoint/rank_report.h"

#include <nlohmann/json.hpp>

#include "base/cast.h"
#include "checkpoint/json_shapes.h"

namespace longhaul {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr int kReportTag = 31;  // of messages on the communicator of the save

void add_piece(Manifest& manifest, const json& entry, size_t rank) {
  const auto name = entry.at("name").get<std::string>();
  const TensorSpec spec{.dtype = dtype_from_text(entry.at("dtype").get<std::string>()), .shape = shape_from_json(entry.at("whole"))};
  StoredTensor& tensor = manifest.tensors.try_emplace(name, StoredTensor{.spec = spec, .pieces = {}}).first->second;
  if (tensor.spec != spec) {
    throw CheckpointError("rank {} has \"{}\" as {}{}, a rank before it as {}{}", rank, name, to_string(spec.dtype),
                          spec.shape.to_string(), to_string(tensor.spec.dtype), tensor.spec.shape.to_string());
  }
  tensor.pieces.push_back(piece_from_json(entry.at("piece")));
}

}  // namespace

std::string report_text(const WrittenFile& file, const JsonDocuments& rank_documents) {
  ordered_json pieces = ordered_json::array();
  for (const WrittenPiece& piece : file.pieces) {
    pieces.push_back({{"name", piece.name},
                      {"dtype", to_string(piece.whole.dtype)},
                      {"whole", shape_to_json(piece.whole.shape)},
                      {"piece", piece_to_json(piece.stored)}});
  }
  const ordered_json report{{"file", file.name},
                            {"bytes", file.hash.bytes},
                            {"xxh3", hash_to_text(file.hash.hash)},
                            {"documents", documents_to_json(rank_documents)},
                            {"pieces", std::move(pieces)}};
  return report.dump();
}

std::vector<std::string> gather_reports(HostComm& comm, std::string_view mine) {
  const std::vector<int64_t> lengths = comm.all_gather_value(narrow<int64_t>(mine.size()));
  if (comm.rank() != 0) {
    comm.send_bytes(std::as_bytes(std::span(mine)), 0, kReportTag);
    return {};
  }
  std::vector<std::string> reports{std::string(mine)};
  for (int rank = 1; rank < comm.size(); ++rank) {
    std::string& report = reports.emplace_back(narrow<size_t>(lengths[static_cast<size_t>(rank)]), '\0');
    comm.recv_bytes(std::as_writable_bytes(std::span(report)), rank, kReportTag);
  }
  return reports;
}

Manifest assemble_manifest(const CheckpointContent& content, std::span<const std::string> reports) {
  Manifest manifest{.info = content.info};
  manifest.documents = content.documents;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const json report = json::parse(reports[rank]);
    manifest.files.emplace(report.at("file").get<std::string>(),
                           FileHash{.bytes = report.at("bytes").get<int64_t>(),
                                    .hash = hash_from_text(report.at("xxh3").get<std::string>(), ErrorKind::Checkpoint)});
    manifest.rank_documents.push_back(documents_from_json(report.at("documents")));
    for (const json& entry : report.at("pieces")) {
      add_piece(manifest, entry, rank);
    }
  }
  for (const auto& [name, tensor] : manifest.tensors) {
    std::vector<Block> blocks;
    for (const StoredPiece& piece : tensor.pieces) {
      blocks.push_back(piece.block);
    }
    if (const std::string problem = coverage_problem(tensor.spec.shape, blocks); !problem.empty()) {
      throw CheckpointError("\"{}\" cannot be saved: {}", name, problem);
    }
  }
  return manifest;
}

}  // namespace longhaul
