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
  std::string dtype = "fp64";
  bool gradients = false;
  bool force_routes = false;
  double tolerance = 1e-3;
};

int run_compare(const Flags& flags) {
  blas::set_threads(1);
  const CompareReport report =
      compare(ReleasedModel(flags.model), flags.reference,
              {.dtype = flags.dtype == "fp64" ? DType::F64 : DType::F32,
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
  command->add_option("--dtype", flags->dtype, "type of computation")->check(CLI::IsMember({"fp64", "fp32"}))->capture_default_str();
  command->add_flag("--force-routes", flags->force_routes, "use the reference's expert choices");
  command->add_option("--tolerance", flags->tolerance, "largest relative difference")->capture_default_str();
  return {.app = command, .run = [flags] { return run_compare(*flags); }};
}

}  // namespace longhaul::convert_app
