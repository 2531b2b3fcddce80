// Two models or checkpoints, tensor by tensor.
#pragma once

#include <string>
#include <vector>

#include "convert/tensor_source.h"

namespace longhaul {

struct TensorDifference {
  std::string name;
  double max_abs = 0;   // largest |a - b|; infinite where only one is NaN, or one is infinite
  double relative = 0;  // max_abs / largest |b|
  std::string where;    // of the largest: "[3, 0, 7]"
};

struct DiffReport {
  int64_t compared = 0;
  std::vector<TensorDifference> different;  // not equal; worst first
  std::vector<std::string> only_a, only_b;
  std::vector<std::string> mismatched;  // of another shape or, between checkpoints, type
  std::vector<std::string> left_out;    // "1200 tensors under optimizer/": what a released directory never has

  // Everything is in both, alike in shape, and no relative difference is beyond `tolerance`.
  [[nodiscard]] bool within(double tolerance) const;
  [[nodiscard]] std::string text(double tolerance) const;
};

// Between two checkpoints all tensors are compared; with a released directory those of the model and those that pass through.
[[nodiscard]] DiffReport diff_sources(TensorSource& a, TensorSource& b);

}  // namespace longhaul
