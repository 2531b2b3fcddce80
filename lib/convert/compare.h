// Runs a model on recorded inputs and compares logits, loss, routes and gradients with what another program computed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convert/released_weights.h"
#include "tensor/dtype.h"

namespace longhaul {

struct CompareOptions {
  DType dtype = DType::F64;  // F64 and F32 on the CPU, F32 and BF16 on a GPU
  Device device;
  enum class Gradients : uint8_t { Skip, Compare } gradients = Gradients::Skip;
  enum class Routes : uint8_t { Free, Forced } routes = Routes::Free;
};

struct CompareRow {
  std::string name;
  double relative_l2 = 0;  // |ours - reference| / |reference|
  double max_abs = 0;
  double scale = 0;        // largest |reference|
};

struct CompareReport {
  CompareRow logits;
  double loss = 0;
  std::optional<double> reference_loss;
  int64_t routes_equal = 0;  // (token, choice) pairs whose expert is also in the reference's set
  int64_t routes_total = 0;
  std::vector<CompareRow> gradients;  // worst first
  std::vector<std::string> unmatched;  // gradients of the file without a parameter, parameters without a gradient in the file

  // Logits and gradients within `tolerance` relative L2, loss within it relatively, all routes equal, nothing unmatched;
  // of what the reference holds.
  [[nodiscard]] bool within(double tolerance) const;
  [[nodiscard]] std::string text(double tolerance) const;
};

// `reference` holds input_ids and targets [rows, tokens], optionally cu_seqlens [documents + 1] (otherwise every row is a
// document), logits, loss, routes.L, grad.NAME.
// Errors: ConversionError; UsageError for a type that the device does not compute in.
[[nodiscard]] CompareReport compare(const ReleasedModel& model, const std::filesystem::path& reference, const CompareOptions& options);

}  // namespace longhaul
