// See export_model.h.
#include "convert/export_model.h"

#include <optional>

#include "checkpoint/directory_names.h"
#include "checkpoint/load.h"
#include "checkpoint/together.h"
#include "convert/export_plan.h"
#include "convert/export_shard.h"
#include "convert/released_config.h"
#include "convert/released_directory.h"
#include "convert/targets.h"
#include "storage/atomic_write.h"

namespace longhaul {

namespace fs = std::filesystem;

namespace {

std::string_view type_text(ReleasedType type) {
  switch (type) {
    case ReleasedType::BF16: return "bf16";
    case ReleasedType::F32: return "f32";
    case ReleasedType::Mxfp4: return "mxfp4";
  }
  return "?";
}

fs::path absolute_target(const fs::path& to) {
  const fs::path absolute = fs::absolute(to).lexically_normal();
  return absolute.has_filename() ? absolute : absolute.parent_path();
}

ExportReport report_of(const ExportSources& sources, const ExportPlan& plan) {
  ExportReport report{.format = released_format(plan.model), .checkpoint = sources.checkpoint.path(), .shards = std::ssize(plan.shards)};
  for (const ExportTensor& tensor : plan.tensors) {
    const CheckpointReader& reader = tensor.spec ? sources.checkpoint : sources.passing();
    const std::string_view from = to_string(reader.manifest().tensors.at(tensor.stored).spec.dtype);
    report.changes.add(tensor.spec ? tensor.spec->name : tensor.declarations.front().name, from, tensor.spec ? type_text(tensor.spec->type) : from);
    report.tensors += std::ssize(tensor.declarations);
  }
  return report;
}

// Index and config.json, after all shards; the bytes of all tensors.
int64_t write_tables(const fs::path& staging, const ExportPlan& plan) {
  const int64_t shards = std::ssize(plan.shards);
  const std::string index = index_of_written(staging, shards);
  if (shards > 1) {
    write_text_atomically(staging / kReleasedIndex, index, ErrorKind::Conversion);
  }
  const std::string config = released_config(
      {.model = plan.model, .types = plan.types, .imported = plan.imported_config, .has_passthrough = plan.has_passthrough});
  write_text_atomically(staging / kReleasedConfig, config, ErrorKind::Conversion);
  int64_t bytes = 0;
  for (int64_t shard = 0; shard < shards; ++shard) {
    bytes += static_cast<int64_t>(fs::file_size(staging / shard_name(shard, shards)));
  }
  return bytes;
}

struct Export {
  ExportSources sources;
  ExportPlan plan;
};

void write_all(HostComm& comm, const ExportRequest& request, Export& work, const fs::path& staging, ExportReport& report) {
  const std::string action = fmt::format("exporting {}", work.sources.checkpoint.path().string());
  const int64_t shards = std::ssize(work.plan.shards);
  run_together(comm, action, [&] {
    for (int64_t shard = comm.rank(); shard < shards; shard += comm.size()) {
      write_shard(work.sources, work.plan, work.plan.shards[static_cast<size_t>(shard)], staging / shard_name(shard, shards), request.fault);
    }
  });
  run_together(comm, action, [&] {
    if (comm.rank() == 0) {
      report.bytes = write_tables(staging, work.plan);
      sync_directory(staging, ErrorKind::Conversion);
      rename_durably(staging, absolute_target(request.to), ErrorKind::Conversion);
    }
  });
  comm.broadcast_value(report.bytes, 0);
}

}  // namespace

ExportReport export_model(HostComm& comm, const ExportRequest& request) {
  const fs::path staging = hidden_beside(absolute_target(request.to), kInProgressSuffix);
  fs::path checkpoint;
  fs::path imported;
  run_together(comm, fmt::format("exporting {}", request.from.string()), [&] {
    require_new_target(request.to);
    checkpoint = checkpoint_at(request.from);
    imported = request.imported.empty() ? fs::path() : checkpoint_at(request.imported);
  });
  std::optional<Export> work;
  ExportSources sources{.checkpoint = open_checkpoint(comm, checkpoint), .imported = std::nullopt};
  if (!imported.empty()) {
    sources.imported = open_checkpoint(comm, imported);
  }
  run_together(comm, fmt::format("exporting {}", checkpoint.string()), [&] {
    ExportPlan plan = make_export_plan(sources, request.types, request.max_shard_bytes);
    work.emplace(Export{.sources = std::move(sources), .plan = std::move(plan)});
    if (comm.rank() == 0) {
      fs::remove_all(staging);  // of an export that was interrupted
      fs::create_directories(staging);
    }
  });
  ExportReport report = report_of(work->sources, work->plan);
  try {
    write_all(comm, request, *work, staging, report);
  } catch (const CommError&) {
    throw;  // other ranks may still be writing
  } catch (const Error&) {
    if (comm.rank() == 0) {
      std::error_code ignored;
      fs::remove_all(staging, ignored);
    }
    throw;
  }
  return report;
}

}  // namespace longhaul
