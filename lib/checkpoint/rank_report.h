// What each rank tells the others after it has written its file, and the manifest that follows from all of it.
#pragma once

#include <span>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/rank_file.h"

namespace longhaul {

[[nodiscard]] std::string report_text(const WrittenFile& file, const JsonDocuments& rank_documents);

// CheckpointError when two ranks disagree about a tensor, or the pieces do not cover it exactly once. index.h5 is not in
// it yet.
[[nodiscard]] Manifest assemble_manifest(const CheckpointContent& content, std::span<const std::string> reports);

}  // namespace longhaul
