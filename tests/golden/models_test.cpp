// Whole models against programs outside of this one: the float64 reference of tools/golden, and the float32 numbers of other
// implementations in tests/golden/reference. Every logit, the loss, every route and every gradient, packed documents included.
#include <catch2/catch_test_macros.hpp>

#include <filesystem>

#include "convert/compare.h"

namespace longhaul {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(LH_SOURCE_DIR) / "tests/golden";

CompareReport compare_folder(const std::string& folder, DType dtype) {
  return compare(ReleasedModel(kGolden / folder), kGolden / folder / "reference.safetensors",
                 {.dtype = dtype, .gradients = CompareOptions::Gradients::Compare});
}

struct Model {
  const char* folder;
  int64_t gradients;  // that the file holds; a comparison of fewer has missed some
};

TEST_CASE("whole models compute what the float64 reference computes", "[golden]") {
  constexpr Model kModels[] = {{"model_k3", 329}, {"model_kimi_linear", 198}, {"model_block_of_one", 139}, {"model_two_dense", 175}};
  for (const Model& model : kModels) {
    for (const auto& [dtype, tolerance] : {std::pair(DType::F64, 1e-9), std::pair(DType::F32, 1e-4)}) {
      const CompareReport report = compare_folder(model.folder, dtype);
      INFO(model.folder << " in " << to_string(dtype) << "\n" << report.text(tolerance));
      CHECK(report.within(tolerance));
      CHECK(std::ssize(report.gradients) == model.gradients);
      CHECK(report.routes_total > 0);
    }
  }
}

TEST_CASE("whole models compute what other implementations compute", "[golden]") {
  // Their numbers are float32, and so are the tolerances: the loss absolutely, logits and gradients in relative L2.
  constexpr Model kModels[] = {{"reference/k3_tiny", 371}, {"reference/k3_packed", 371}, {"reference/kl_tiny", 118}};
  for (const Model& model : kModels) {
    const CompareReport report = compare_folder(model.folder, DType::F64);
    INFO(model.folder << "\n" << report.text(1e-3));
    CHECK(std::abs(report.loss - report.reference_loss.value()) <= 1e-6);
    CHECK(report.logits.max_abs <= 1e-3);
    CHECK(report.within(1e-3));
    CHECK(std::ssize(report.gradients) == model.gradients);
    CHECK((report.routes_total > 0) == std::string(model.folder).starts_with("reference/k3"));
  }
}

}  // namespace
}  // namespace longhaul
