// convert compare: runs a model on recorded inputs and compares with what another program computed.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "apps/convert/command.h"
#include "convert/compare.h"
#include "device/blas.h"

namespace longhaul::convert_app {

namespace {

struct Flags {
  std::string model;
  std::string reference;
  std::string backend = "cpu";
  std::string dtype;  // empty: fp64 on the CPU, bf16 on a GPU
  bool gradients = false;
  bool force_routes = false;
  double tolerance = 1e-3;
};

DType dtype_of(const Flags& flags) {
  if (flags.dtype.empty()) {
    return flags.backend == "cuda" ? DType::BF16 : DType::F64;
  }
  return flags.dtype == "fp64" ? DType::F64 : flags.dtype == "fp32" ? DType::F32 : DType::BF16;
}

int run_compare(const Flags& flags) {
  blas::set_threads(1);
  const Device device{.kind = flags.backend == "cuda" ? DeviceKind::Cuda : DeviceKind::Cpu, .index = 0};
  const CompareReport report =
      compare(ReleasedModel(flags.model), flags.reference,
              {.dtype = dtype_of(flags),
               .device = device,
               .gradients = flags.gradients ? CompareOptions::Gradients::Compare : CompareOptions::Gradients::Skip,
               .routes = flags.force_routes ? CompareOptions::Routes::Forced : CompareOptions::Routes::Free});
  fmt::print("{}", report.text(flags.tolerance));
  return report.within(flags.tolerance) ? 0 : static_cast<int>(ErrorKind::Conversion);
}

}  // namespace

Command add_compare(CLI::App& app) {
  const auto flags = std::make_shared<Flags>();  // shared by the flags and by run, which outlive this function
  CLI::App* command = app.add_subcommand("compare", "run a model on recorded inputs and compare logits, loss, routes and gradients");
  command->add_option("--model", flags->model, "released model, checkpoint or run directory")->required()->type_name("PATH");
  command->add_option("--reference", flags->reference, "safetensors file with input_ids, targets, logits, loss, routes.L, grad.NAME")
      ->required()
      ->type_name("FILE");
  command->add_flag("--gradients", flags->gradients, "also run backward and compare every grad.NAME");
  command->add_option("--backend", flags->backend, "where to compute")->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  command->add_option("--dtype", flags->dtype, "type of computation: fp64 or fp32 on the CPU (default fp64), fp32 or bf16 on a GPU (default bf16)")
      ->check(CLI::IsMember({"fp64", "fp32", "bf16"}));
  command->add_flag("--force-routes", flags->force_routes, "use the reference's expert choices");
  command->add_option("--tolerance", flags->tolerance, "largest relative difference")->capture_default_str();
  return {.app = command, .run = [flags] { return run_compare(*flags); }};
}

}  // namespace longhaul::convert_app
