// Writes one safetensors file of an export, block by block.
#pragma once

#include <filesystem>
#include <functional>

#include "convert/checkpoint_values.h"
#include "convert/export_plan.h"

namespace longhaul {

// `wrote` is called with the bytes of every block; may be empty. ConversionError when a value cannot be written in its type.
void write_shard(ExportSources& sources, const ExportPlan& plan, const Shard& shard, const std::filesystem::path& path,
                 const std::function<void(int64_t bytes)>& wrote);

}  // namespace longhaul
