// convert inspect and convert verify: what a directory holds, and whether it is whole.
#include <fmt/format.h>

#include <memory>

#include "apps/convert/command.h"
#include "convert/inspect.h"
#include "convert/verify.h"

namespace longhaul::convert_app {

Command add_inspect(CLI::App& app) {
  struct Flags {
    std::string path;
    bool json = false;
  };
  const auto flags = std::make_shared<Flags>();  // shared by the flags and by run, which outlive this function
  CLI::App* command = app.add_subcommand("inspect", "show what a checkpoint, a run or a released model holds");
  command->add_option("path", flags->path, "the directory")->required()->type_name("PATH");
  command->add_flag("--json", flags->json, "every tensor by name, as JSON");
  return {.app = command, .run = [flags] {
            fmt::print("{}", inspect(flags->path, flags->json ? InspectFormat::Json : InspectFormat::Text));
            return 0;
          }};
}

Command add_verify(CLI::App& app) {
  const auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("verify", "read everything and compare it with the hashes; 5 names what is damaged");
  command->add_option("path", *path, "a checkpoint, a run or a released model")->required()->type_name("PATH");
  return {.app = command, .run = [path] {
            return with_ranks([&](HostComm& comm) {
              const std::string text = verify(comm, *path);
              if (comm.rank() == 0) {
                fmt::print("{}", text);
              }
              return 0;
            });
          }};
}

}  // namespace longhaul::convert_app
