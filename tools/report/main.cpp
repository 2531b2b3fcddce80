// report: a run directory to one HTML page. Flags and exit codes only; the page is lib/report.
#include <CLI/CLI.hpp>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "report/page.h"
#include "report/run_charts.h"
#include "report/run_record.h"

namespace {

using namespace longhaul;

constexpr const char* kDescription =
    "Turns what a run has recorded (metrics.jsonl, recipe.yaml) into one HTML page of plots and tables. The page holds\n"
    "everything it shows and opens without a network. The run may still be going on.";
constexpr const char* kFooter =
    "Example: report runs/quickstart --reference \"bigram entropy=2.239\"\n"
    "Exit codes: 0 done, 2 usage, 6 the run directory or its metrics.jsonl is missing, or the page cannot be written.";

struct Flags {
  std::string run_directory;
  std::string output;
  std::string svg;
  std::vector<std::string> references;
};

// Returns the exit code of a run that ends here (help, version, bad usage), or -1.
[[nodiscard]] int parse(int argc, char** argv, Flags& flags) {
  CLI::App app{kDescription, "report"};
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("report ") + LH_VERSION);
  app.add_option("run_dir", flags.run_directory, "directory of the run")->required()->type_name("RUN_DIR");
  app.add_option("--output", flags.output, "page to write; report.html in the run directory when left out")->type_name("FILE");
  app.add_option("--svg", flags.svg, "also write the plot of the loss alone, as an SVG file")->type_name("FILE");
  app.add_option("--reference", flags.references, "horizontal line in the plot of the loss, nats a token; repeatable")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->take_all();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorKind::Recipe);
  }
  return -1;
}

// "bigram entropy=2.239"
report::Reference reference_from(const std::string& text) {
  const size_t equals = text.rfind('=');
  const std::string number = equals == std::string::npos ? "" : text.substr(equals + 1);
  size_t used = 0;
  double value = report::kMissing;
  try {
    value = std::stod(number, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != number.size() || !std::isfinite(value)) {
    throw RecipeError("--reference must be NAME=VALUE with a number, such as \"bigram entropy=2.239\", got \"{}\"", text);
  }
  return {.label = text.substr(0, equals), .y = value};
}

// Readers of the old file never see half of the new one.
void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::path part = path;
  part += ".part";
  std::ofstream file(part, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file) {
    std::filesystem::rename(part, path, error);
  }
  if (!file || error) {
    throw DataError("{} cannot be written; check that its folder exists, its permissions and the disk's space", path.string());
  }
}

void run(const Flags& flags) {
  report::PageOptions options{.references = {}, .version = std::string("Longhaul ") + LH_VERSION};
  for (const std::string& text : flags.references) {
    options.references.push_back(reference_from(text));
  }
  const report::RunRecord record = report::read_run(flags.run_directory);
  const std::filesystem::path output = flags.output.empty() ? std::filesystem::path(flags.run_directory) / "report.html" : std::filesystem::path(flags.output);
  write(output, report::to_html(record, options));
  fmt::print("{}: {} steps, {} validations, {} checkpoints\n", output.string(), record.steps.size(), record.validations.size(), record.checkpoints.size());
  if (!flags.svg.empty()) {
    write(flags.svg, report::to_svg(report::loss_chart(record, options.references), report::SvgUse::Standalone));
    fmt::print("{}: loss\n", flags.svg);
  }
  if (record.skipped_lines > 0) {
    fmt::print(stderr, "report: note: {} line(s) of metrics.jsonl could not be read and were skipped\n", record.skipped_lines);
  }
}

[[nodiscard]] int fail(ErrorKind kind, const char* message) {
  fmt::print(stderr, "report: {}: {}\n", to_string(kind), message);
  return static_cast<int>(kind);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Flags flags;
    if (const int code = parse(argc, argv, flags); code >= 0) {
      return code;
    }
    run(flags);
    return 0;
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::exception& error) {
    return fail(ErrorKind::Internal, error.what());
  }
}
