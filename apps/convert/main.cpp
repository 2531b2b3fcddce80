// convert: looks into models and checkpoints. Flags and exit codes only; the work is in lib/convert.
#include <CLI/CLI.hpp>
#include <exception>
#include <string>

#include "base/error.h"
#include "convert/compare.h"
#include "device/blas.h"

namespace {

using namespace longhaul;

struct CompareFlags {
  std::string model;
  std::string reference;
  std::string dtype = "fp64";
  bool gradients = false;
  bool force_routes = false;
  double tolerance = 1e-3;
};

void add_compare(CLI::App& app, CompareFlags& flags) {
  CLI::App* command = app.add_subcommand("compare", "run a model on recorded inputs and compare logits, loss, routes and gradients");
  command->add_option("--model", flags.model, "directory with config.json and model.safetensors")->required()->type_name("DIR");
  command->add_option("--reference", flags.reference, "safetensors file with input_ids, targets, logits, loss, routes.L, grad.NAME")
      ->required()
      ->type_name("FILE");
  command->add_flag("--gradients", flags.gradients, "also run backward and compare every grad.NAME");
  command->add_option("--dtype", flags.dtype, "type of computation")->check(CLI::IsMember({"fp64", "fp32"}))->capture_default_str();
  command->add_flag("--force-routes", flags.force_routes, "use the reference's expert choices");
  command->add_option("--tolerance", flags.tolerance, "largest relative difference")->capture_default_str();
}

[[nodiscard]] int run_compare(const CompareFlags& flags) {
  blas::set_threads(1);
  const CompareReport report =
      compare(ReleasedModel(flags.model), flags.reference,
              {.dtype = flags.dtype == "fp64" ? DType::F64 : DType::F32,
               .gradients = flags.gradients ? CompareOptions::Gradients::Compare : CompareOptions::Gradients::Skip,
               .routes = flags.force_routes ? CompareOptions::Routes::Forced : CompareOptions::Routes::Free});
  fmt::print("{}", report.text(flags.tolerance));
  return report.within(flags.tolerance) ? 0 : static_cast<int>(ErrorKind::Conversion);
}

[[nodiscard]] int fail(ErrorKind kind, const char* message) {
  fmt::print(stderr, "convert: {}: {}\n", to_string(kind), message);
  return static_cast<int>(kind);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Looks into models and checkpoints.", "convert"};
  CompareFlags compare_flags;
  app.set_version_flag("--version", std::string("convert ") + LH_VERSION);
  app.require_subcommand(1);
  add_compare(app, compare_flags);
  try {
    app.parse(argc, argv);
    return run_compare(compare_flags);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorKind::Recipe);
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::exception& error) {
    return fail(ErrorKind::Internal, error.what());
  }
}
