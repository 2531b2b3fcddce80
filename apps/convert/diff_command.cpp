// convert diff: two checkpoints or released models, tensor by tensor.
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "apps/convert/command.h"
#include "convert/diff.h"

namespace longhaul::convert_app {

Command add_diff(CLI::App& app) {
  struct Flags {
    std::string a;
    std::string b;
    double tolerance = 0;
  };
  const auto flags = std::make_shared<Flags>();  // shared by the flags and by run, which outlive this function
  CLI::App* command = app.add_subcommand("diff", "compare two checkpoints or released models; 0 equal, 7 different");
  command->add_option("A", flags->a, "checkpoint, run or released model")->required()->type_name("PATH");
  command->add_option("B", flags->b, "the other")->required()->type_name("PATH");
  command->add_option("--tolerance", flags->tolerance, "largest difference allowed, relative to the largest value of B's tensor")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  return {.app = command, .run = [flags] {
            const auto a = open_tensor_source(flags->a);
            const auto b = open_tensor_source(flags->b);
            const DiffReport report = diff_sources(*a, *b);
            fmt::print("{}", report.text(flags->tolerance));
            return report.within(flags->tolerance) ? 0 : static_cast<int>(ErrorKind::Conversion);
          }};
}

}  // namespace longhaul::convert_app
