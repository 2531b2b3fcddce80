// Every golden file of every operation and layer, in double to 1e-9 and in float to 1e-4 relative L2.
// A folder of tests/golden without a run, and a tensor of a file that nobody computes, is a failure.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/golden/golden_runs.h"

namespace longhaul::testing {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(LH_SOURCE_DIR) / "tests/golden";

// Whole models are in models_test.cpp.
bool holds_models(const std::string& folder) { return folder.starts_with("model_") || folder == "reference"; }

GoldenRuns all_runs() {
  GoldenRuns runs;
  for (GoldenRuns part : {basic_runs(), attention_runs(), routing_runs(), layer_runs()}) {
    runs.merge(part);
  }
  return runs;
}

std::set<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
  return {std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()};
}

void check_file(const std::filesystem::path& file, const GoldenRun& run, DType dtype, double tolerance) {
  INFO(file.parent_path().filename().string() << "/" << file.filename().string() << " in " << to_string(dtype));
  ExecContext ctx = ExecContext::cpu();
  GoldenCase golden(file, dtype);
  run(ctx, golden);
  CHECK(golden.problems(tolerance) == std::vector<std::string>{});
}

}  // namespace

TEST_CASE("operations and layers compute what the float64 reference computes", "[golden]") {
  const GoldenRuns runs = all_runs();
  for (const std::filesystem::path& folder : entries_of(kGolden)) {
    const std::string op = folder.filename().string();
    if (!std::filesystem::is_directory(folder) || holds_models(op)) {
      continue;
    }
    DYNAMIC_SECTION(op) {
      REQUIRE(runs.contains(op));
      const auto [first, last] = runs.equal_range(op);
      for (const std::filesystem::path& file : entries_of(folder)) {
        std::for_each(first, last, [&](const auto& entry) {
          check_file(file, entry.second, DType::F64, 1e-9);
          check_file(file, entry.second, DType::F32, 1e-4);
        });
      }
    }
  }
}

TEST_CASE("every run has its folder of golden files", "[golden]") {
  for (const auto& [op, run] : all_runs()) {
    INFO(op);
    CHECK(std::filesystem::is_directory(kGolden / op));
  }
}

}  // namespace longhaul::testing
