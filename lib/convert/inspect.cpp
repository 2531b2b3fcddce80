// See inspect.h.
#include "convert/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/directory_names.h"
#include "checkpoint/find.h"
#include "checkpoint/reader.h"
#include "convert/change_table.h"
#include "convert/model_tensors.h"
#include "convert/released_directory.h"
#include "convert/released_layout.h"
#include "convert/targets.h"

namespace longhaul {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

struct Row {
  std::string name;
  std::string type;
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

// What is known about a directory; the texts follow from it.
struct Summary {
  ordered_json facts = ordered_json::object();  // in the order in which they are shown
  std::vector<Row> rows;
};

std::string size_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) {
    value /= 1024;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

int64_t numel(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    count *= size;
  }
  return count;
}

Summary of_checkpoint(const fs::path& path) {
  const CheckpointReader reader(path);
  const CheckpointInfo& info = reader.info();
  Summary summary;
  int64_t parameters = 0;
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    Row row{.name = name, .type = std::string(to_string(tensor.spec.dtype)), .shape = {}, .bytes = tensor.spec.bytes()};
    for (int d = 0; d < tensor.spec.shape.rank(); ++d) {
      row.shape.push_back(tensor.spec.shape[d]);
    }
    parameters += name.starts_with(kModelGroup) && !name.ends_with("e_score_correction_bias") ? tensor.spec.shape.numel() : 0;
    summary.rows.push_back(std::move(row));
  }
  int64_t bytes = 0;
  for (const auto& [name, file] : reader.manifest().files) {
    bytes += file.bytes;
  }
  summary.facts = {{"kind", "checkpoint"},   {"path", path.string()},      {"step", info.step},
                   {"stage", info.stage},    {"tokens", info.tokens},      {"stage_final", info.role == CheckpointRole::StageFinal},
                   {"parameters", parameters}, {"ranks", reader.num_ranks()}, {"bytes", bytes}};
  summary.facts["layout"] = ordered_json::parse(info.layout, nullptr, false);
  summary.facts["versions"] = ordered_json::parse(info.versions, nullptr, false);
  return summary;
}

Summary of_run(const fs::path& path) {
  ordered_json checkpoints = ordered_json::array();
  for (const std::string& name : names_in(checkpoints_directory(path))) {
    const auto step = parse_step_name(name);
    if (step) {
      const std::string reason = incomplete_reason(checkpoints_directory(path) / name);
      checkpoints.push_back({{"name", name}, {"step", *step}, {"complete", reason.empty()}, {"reason", reason}});
    }
  }
  const fs::path newest = checkpoint_at(path);
  Summary summary = of_checkpoint(newest);
  summary.facts["kind"] = "run";
  summary.facts["path"] = path.string();
  summary.facts["checkpoint"] = newest.string();
  summary.facts["checkpoints"] = std::move(checkpoints);
  return summary;
}

Summary of_released(const fs::path& path) {
  const ReleasedDirectory directory(path);
  Summary summary;
  int64_t parameters = 0;
  int64_t bytes = 0;
  for (const ReleasedTensor& tensor : directory.tensors()) {
    Row row{.name = tensor.name, .type = tensor.dtype, .shape = tensor.shape, .bytes = tensor.bytes()};
    std::transform(row.type.begin(), row.type.end(), row.type.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    parameters += tensor.name.ends_with("e_score_correction_bias") ? 0 : numel(tensor.shape);
    bytes += row.bytes;
    summary.rows.push_back(std::move(row));
  }
  summary.facts = {{"kind", "released model"}, {"path", path.string()},
                   {"format", released_format(directory.options()) == ReleasedFormat::KimiK3 ? "kimi_k3" : "kimi_linear"},
                   {"parameters", parameters}, {"files", directory.num_files()}, {"bytes", bytes}, {"problems", directory.problems()}};
  return summary;
}

std::string to_text(const Summary& summary) {
  std::string out;
  for (const auto& [key, value] : summary.facts.items()) {
    if (value.is_array()) {
      for (const ordered_json& entry : value) {
        out += fmt::format("{:<12}{}\n", key, entry.is_string() ? entry.get<std::string>() : entry.dump());
      }
      continue;
    }
    out += fmt::format("{:<12}{}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  struct Total {
    int64_t count = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Total> lines;
  for (const Row& row : summary.rows) {
    const std::string shape = fmt::format("[{}]", fmt::join(row.shape, ", "));
    Total& total = lines[fmt::format("{:<84} {:<6} {:<22}", name_pattern(row.name), row.type, shape)];
    ++total.count;
    total.bytes += row.bytes;
  }
  out += fmt::format("\n{:<84} {:<6} {:<22} {:>7} {:>11}\n", "tensor", "type", "shape", "number", "bytes");
  for (const auto& [line, total] : lines) {
    out += fmt::format("{} {:>7} {:>11}\n", line, total.count, size_text(total.bytes));
  }
  return out;
}

std::string to_json_text(const Summary& summary) {
  ordered_json root = summary.facts;
  root["tensors"] = ordered_json::array();
  for (const Row& row : summary.rows) {
    root["tensors"].push_back({{"name", row.name}, {"dtype", row.type}, {"shape", row.shape}, {"bytes", row.bytes}});
  }
  return root.dump(1) + "\n";
}

Summary summarise(const fs::path& path) {
  switch (directory_kind(path)) {
    case DirectoryKind::Checkpoint: return of_checkpoint(path);
    case DirectoryKind::Run: return of_run(path);
    case DirectoryKind::Released: return of_released(path);
  }
  throw InternalError("a directory of no kind");
}

}  // namespace

std::string inspect(const fs::path& path, InspectFormat format) {
  const Summary summary = summarise(path);
  return format == InspectFormat::Json ? to_json_text(summary) : to_text(summary);
}

}  // namespace longhaul
