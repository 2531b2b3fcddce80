// convert export: a checkpoint becomes a released model.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "apps/convert/command.h"
#include "convert/export_model.h"
#include "convert/shards.h"

namespace longhaul::convert_app {

namespace {

struct Flags {
  ExportRequest request;
  std::string dtype = "bf16";
  std::string experts;  // as dtype unless given
  std::string max_shard_size = "5GB";
};

ReleasedType type_of(const std::string& name) {
  static const std::map<std::string, ReleasedType> kTypes{{"bf16", ReleasedType::BF16}, {"fp32", ReleasedType::F32}, {"mxfp4", ReleasedType::Mxfp4}};
  return kTypes.at(name);
}

int run_export(Flags& flags) {
  flags.request.types = {.weights = type_of(flags.dtype), .experts = type_of(flags.experts.empty() ? flags.dtype : flags.experts)};
  flags.request.max_shard_bytes = parse_size(flags.max_shard_size);
  return with_ranks([&](HostComm& comm) {
    const ExportReport report = export_model(comm, flags.request);
    if (comm.rank() == 0) {
      fmt::print("{} tensors of {} in the layout {}, {} files, {} bytes written to {}\n", report.tensors, report.checkpoint.string(),
                 report.format == ReleasedFormat::KimiK3 ? "kimi_k3" : "kimi_linear", report.shards, report.bytes, flags.request.to.string());
      fmt::print("{} tensors changed their type\n{}", report.changes.changed(), report.changes.text());
    }
    return 0;
  });
}

}  // namespace

Command add_export(CLI::App& app) {
  const auto flags = std::make_shared<Flags>();  // shared by the flags and by run, which outlive this function
  CLI::App* command = app.add_subcommand("export", "make a released model (kimi_k3 or kimi_linear) from a checkpoint");
  command->add_option("--from", flags->request.from, "a checkpoint, or a run directory (its newest one)")->required()->type_name("CHECKPOINT");
  command->add_option("--to", flags->request.to, "a new directory")->required()->type_name("HF_DIR");
  command->add_option("--imported", flags->request.imported,
                      "the checkpoint of the import that the run started from: its vision tower and config.json come back")
      ->type_name("CHECKPOINT");
  command->add_option("--dtype", flags->dtype, "type of the weights; what is released in f32 stays f32")
      ->check(CLI::IsMember({"bf16", "fp32"}))
      ->capture_default_str();
  command->add_option("--experts", flags->experts, "type of the routed experts; that of --dtype unless given")->check(CLI::IsMember({"bf16", "mxfp4"}));
  command->add_option("--max-shard-size", flags->max_shard_size, "largest file")->type_name("SIZE")->capture_default_str();
  return {.app = command, .run = [flags] { return run_export(*flags); }};
}

}  // namespace longhaul::convert_app
