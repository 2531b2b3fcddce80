// The gated feed-forward layer with both activations. Golden values are in tests/golden.
#include "layers/mlp/mlp_layer.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/support/layer_conformance.h"

namespace longhaul {
namespace {

using namespace testing;

LayerProblem<OnTokens> problem_of(ActivationKind kind, DType dtype, int64_t tokens) {
  return {
      OnTokens{.layer = {{.hidden = 7, .intermediate = 11, .activation = {.kind = kind, .beta_gate = 2, .beta_up = 3}, .dtype = dtype}}},
      tokens};
}
constexpr ActivationKind kKinds[] = {ActivationKind::SituGlu, ActivationKind::SwiGlu};

TEST_CASE("MlpLayer has the gradients of finite differences", "[layers]") {
  for (const ActivationKind kind : kKinds) {
    check_layer_gradients(problem_of(kind, DType::F64, 6));
  }
}

TEST_CASE("MlpLayer plans the memory that it uses, and repeats its bits", "[layers]") {
  for (const ActivationKind kind : kKinds) {
    check_layer_memory(problem_of(kind, DType::F32, 33));
    check_layer_memory(problem_of(kind, DType::F64, 33));
  }
}

TEST_CASE("MlpLayer without tokens has no gradient", "[layers]") {
  check_layer_without_tokens(problem_of(ActivationKind::SituGlu, DType::F64, 0));
}

TEST_CASE("MlpLayer adds to its output and to the input's gradient on request", "[layers]") {
  const auto p = problem_of(ActivationKind::SituGlu, DType::F64, 5);
  const LayerResult alone = run_layer(p);
  ExecContext ctx = ExecContext::cpu();
  Arena keep(Device{}, "keep", 0, Arena::Growth::Chunked);
  const Tensor y = random_tensor(DType::F64, {5, 7}, "before/y");
  const Tensor dx = random_tensor(DType::F64, {5, 7}, "before/dx");
  const std::vector<double> y_before = to_doubles(y), dx_before = to_doubles(dx);
  const auto dw = gradient_set<MlpLayer>(p.subject.layer.options, p.subject.weights(), 0);
  const MlpLayer::Saved saved = p.subject.layer.forward(ctx, keep, p.weights.views, p.x, y, Accumulate::Add);
  p.subject.layer.backward(ctx, p.weights.views, p.x, saved, p.dy, dx, dw.views, Accumulate::Add);
  for (size_t i = 0; i < y_before.size(); ++i) {
    CHECK(std::abs(y.values<double>()[i] - y_before[i] - alone.y.values<double>()[i]) < 1e-14);
    CHECK(std::abs(dx.values<double>()[i] - dx_before[i] - alone.dx.values<double>()[i]) < 1e-14);
  }
}

}  // namespace
}  // namespace longhaul
