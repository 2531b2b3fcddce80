// index.h5: every global tensor as a virtual dataset over the rank files, for h5py, h5ls and any tool that knows HDF5.
// Longhaul itself reads the rank files by the manifest, because HDF5 fills the place of a missing file without an error.
#pragma once

#include <filesystem>

#include "checkpoint/manifest.h"

namespace longhaul {

// All but the file hashes of the manifest is used.
void write_index_file(const std::filesystem::path& path, const Manifest& manifest);

}  // namespace longhaul
