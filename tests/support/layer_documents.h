// What layers over packed documents promise: a document computes what it would compute alone, and nothing depends on
// what comes after it or on other documents, bit for bit.
#pragma once

#include <algorithm>

#include "tests/support/layer_conformance.h"

namespace longhaul::testing {

// A layer over documents of these lengths; `bounds` must outlive it.
template <class Layer>
[[nodiscard]] LayerProblem<OnDocuments<Layer>> documents_problem(const Layer& layer, const TensorView& bounds) {
  const int64_t tokens = bounds.data<int64_t>()[bounds.numel() - 1];
  return {OnDocuments<Layer>{.layer = layer, .packing = {.tokens = tokens, .cu_seqlens = bounds}}, tokens};
}

// Packed against one by one: outputs and input gradients bitwise, weight gradients up to the order of their sum.
template <class Layer>
void check_documents_alone(const Layer& layer, const std::vector<int64_t>& lengths) {
  const Tensor bounds = cu_seqlens_of(lengths);
  const auto packed = documents_problem(layer, bounds);
  const LayerResult together = run_layer(packed);
  std::map<std::string, std::vector<double>> sums;
  int64_t first = 0;
  for (const int64_t length : lengths) {
    const Tensor alone_bounds = cu_seqlens_of({length});
    auto alone = documents_problem(layer, alone_bounds);
    std::memcpy(alone.x.view().raw(), packed.x.view().slice(0, first, first + length).raw(), static_cast<size_t>(alone.x.view().bytes()));
    std::memcpy(alone.dy.view().raw(), packed.dy.view().slice(0, first, first + length).raw(),
                static_cast<size_t>(alone.dy.view().bytes()));
    const LayerResult result = run_layer(alone);
    INFO("document of " << length << " tokens from " << first);
    CHECK(bitwise_equal(result.y, together.y.view().slice(0, first, first + length)));
    CHECK(bitwise_equal(result.dx, together.dx.view().slice(0, first, first + length)));
    for (const auto& [name, gradient] : result.gradients) {
      std::vector<double>& sum = sums[name];
      sum.resize(static_cast<size_t>(gradient.view().numel()));
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += gradient.template values<double>()[i];
      }
    }
    first += length;
  }
  for (const auto& [name, sum] : sums) {
    const Tensor& wanted = together.gradients.at(name);
    const Difference d = difference(Tensor::from(sum, wanted.view().shape()), wanted);
    INFO(name << ": " << d.text);
    CHECK(d.within(1e-12));
  }
}

// Changes token `changed` and checks that the outputs of all tokens before it and of all other documents keep their bits,
// and that its own output and that of its document's last token change.
template <class Layer>
void check_causality(const Layer& layer, const std::vector<int64_t>& lengths, int64_t changed) {
  const Tensor bounds = cu_seqlens_of(lengths);
  auto problem = documents_problem(layer, bounds);
  const LayerResult before = run_layer(problem);
  const TensorView row = problem.x.view()[changed];
  for (int64_t i = 0; i < row.numel(); ++i) {
    row.dtype() == DType::F64 ? row.data<double>()[i] += 1 : row.data<float>()[i] += 1;
  }
  const LayerResult after = run_layer(problem);
  const auto* edges = bounds.view().data<int64_t>();
  const int64_t document_end = *std::upper_bound(edges, edges + bounds.view().numel(), changed);
  for (int64_t t = 0; t < problem.x.view().size(0); ++t) {
    INFO("token " << t << " after a change of token " << changed);
    if (t < changed || t >= document_end) {
      CHECK(bitwise_equal(before.y.view()[t], after.y.view()[t]));
    }
  }
  CHECK(!bitwise_equal(before.y.view()[changed], after.y.view()[changed]));
  CHECK(!bitwise_equal(before.y.view()[document_end - 1], after.y.view()[document_end - 1]));
}

}  // namespace longhaul::testing
