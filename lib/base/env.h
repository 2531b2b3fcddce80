// The environment of the process, read in this one place: no other code calls getenv, so that a search for Env shows
// everything outside the recipe that can change a run. A test builds an Env from a list instead.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace longhaul {

class Env {
 public:
  // A copy of the process's environment.
  [[nodiscard]] static Env process();

  Env() = default;
  // Env({{"SLURM_NTASKS", "4"}}), for tests.
  explicit Env(std::initializer_list<std::pair<const std::string, std::string>> variables) : variables_(variables) {}

  [[nodiscard]] std::optional<std::string> get(const std::string& name) const;
  // Nothing when the variable is unset or is not wholly a decimal integer: launchers' variables are hints, and a
  // foreign format (Slurm's "4(x2)") must not stop a run.
  [[nodiscard]] std::optional<int64_t> get_int(const std::string& name) const;

 private:
  std::map<std::string, std::string> variables_;
};

// One variable of the process.
[[nodiscard]] std::optional<std::string> env_get(const std::string& name);

}  // namespace longhaul
