// convert: looks into models and checkpoints, and turns one into the other. The subcommands are in *_command.cpp, the work
// is in lib/convert.
#include <CLI/CLI.hpp>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "apps/convert/command.h"
#include "train/versions.h"

namespace {

using namespace longhaul;

[[nodiscard]] int fail(ErrorKind kind, const char* message) {
  fmt::print(stderr, "convert: {}: {}\n", to_string(kind), message);
  return static_cast<int>(kind);
}

[[nodiscard]] int run_parsed(const std::vector<convert_app::Command>& commands) {
  for (const convert_app::Command& command : commands) {
    if (command.app->parsed()) {
      return command.run();
    }
  }
  throw InternalError("no subcommand was parsed");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Looks into models and checkpoints, and turns one into the other.", "convert"};
  app.set_version_flag("--version", versions_text("convert"));
  app.require_subcommand(1);
  const std::vector<convert_app::Command> commands{convert_app::add_import(app), convert_app::add_export(app), convert_app::add_inspect(app),
                                                   convert_app::add_verify(app), convert_app::add_diff(app),   convert_app::add_compare(app)};
  try {
    app.parse(argc, argv);
    return run_parsed(commands);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorKind::Recipe);
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::exception& error) {
    return fail(ErrorKind::Internal, error.what());
  }
}
