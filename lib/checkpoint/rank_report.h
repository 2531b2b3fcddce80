// What each rank tells rank 0 after it has written its file, and the manifest that follows from all of it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/rank_file.h"
#include "comm/host_comm.h"

namespace longhaul {

[[nodiscard]] std::string report_text(const WrittenFile& file, const JsonDocuments& rank_documents);

// All reports by rank on rank 0, nothing on the others: with thousands of ranks the tables are large. Collective.
[[nodiscard]] std::vector<std::string> gather_reports(HostComm& comm, std::string_view mine);

// CheckpointError when two ranks disagree about a tensor, or the pieces do not cover it exactly once. index.h5 is not in
// it yet.
[[nodiscard]] Manifest assemble_manifest(const CheckpointContent& content, std::span<const std::string> reports);

}  // namespace longhaul
