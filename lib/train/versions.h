// Versions of this program and the libraries it was built with, for --version and for checkpoints.
#pragma once

#include <string>

namespace longhaul {

// A few lines: program and version, then each library, or what it was built without.
[[nodiscard]] std::string versions_text(const std::string& program);
// The same as a JSON object.
[[nodiscard]] std::string versions_json();
// The hash of this program's file: equal exactly where ranks run the same build. Empty where it cannot be read.
[[nodiscard]] std::string build_hash();

}  // namespace longhaul
