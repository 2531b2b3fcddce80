// The subcommands of convert: each in a file of its own, with its flags and what it does.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

#include "comm/host_comm.h"

namespace longhaul::convert_app {

struct Command {
  CLI::App* app;
  std::function<int()> run;  // returns the exit code
};

[[nodiscard]] Command add_import(CLI::App& app);
[[nodiscard]] Command add_export(CLI::App& app);
[[nodiscard]] Command add_inspect(CLI::App& app);
[[nodiscard]] Command add_verify(CLI::App& app);
[[nodiscard]] Command add_diff(CLI::App& app);
[[nodiscard]] Command add_compare(CLI::App& app);

// Runs `work` alone, or on all ranks where mpirun started several, which then share it. Returns its exit code.
[[nodiscard]] int with_ranks(const std::function<int(HostComm&)>& work);

}  // namespace longhaul::convert_app
