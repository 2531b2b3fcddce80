// Versions of this program and the libraries it was built with, for --version and for checkpoints.
#pragma once

#include <string>

namespace longhaul {

// A few lines: program and version, then each library, or what it was built without.
[[nodiscard]] std::string versions_text(const std::string& program);
// The same as a JSON object.
[[nodiscard]] std::string versions_json();

}  // namespace longhaul
