// convert import: a released model becomes a checkpoint.
#include <fmt/format.h>

#include <memory>

#include "apps/convert/command.h"
#include "convert/import_model.h"
#include "train/versions.h"

namespace longhaul::convert_app {

Command add_import(CLI::App& app) {
  const auto request = std::make_shared<ImportRequest>();  // shared by the flags and by run, which outlive this function
  CLI::App* command = app.add_subcommand("import", "make a checkpoint from a released model, for train --init-from");
  command->add_option("--from", request->from, "directory with config.json and *.safetensors")->required()->type_name("HF_DIR");
  command->add_option("--to", request->to, "the checkpoint, a new directory")->required()->type_name("CHECKPOINT");
  const auto run = [request] {
    request->versions = versions_json();
    return with_ranks([&](HostComm& comm) {
      const ImportReport report = import_model(comm, *request);
      if (comm.rank() == 0) {
        fmt::print("{} tensors from {} files, {} parameters, {} bytes written to {}\n", report.changes.total(), report.files, report.parameters,
                   report.bytes, request->to.string());
        fmt::print("{} tensors changed their type, {} pass through untouched\n{}", report.changes.changed(), report.passthrough, report.changes.text());
      }
      return 0;
    });
  };
  return {.app = command, .run = run};
}

}  // namespace longhaul::convert_app
