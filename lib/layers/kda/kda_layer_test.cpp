// Kimi Delta Attention layer, with both decays and both output gates. Golden values are in tests/golden.
#include "layers/kda/kda_layer.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/support/layer_documents.h"

namespace longhaul {
namespace {

using namespace testing;

// Kimi K3: bounded decay, full-rank gate.
KdaLayer k3_layer(DType dtype) {
  return {{.hidden = 10,
           .heads = 2,
           .head_dim = 6,
           .conv_width = 4,
           .decay = DecayKind::Bounded,
           .lower_bound = -5,
           .full_rank_gate = true,
           .dtype = dtype}};
}
// Kimi Linear: softplus decay, low-rank gate; here with another width of the convolution.
KdaLayer kimi_linear_layer(DType dtype) {
  return {{.hidden = 9, .heads = 3, .head_dim = 4, .conv_width = 3, .decay = DecayKind::Softplus, .full_rank_gate = false, .dtype = dtype}};
}

// Shorter than the convolution, around a tile of 16, over a chunk of 64.
const std::vector<int64_t> kLengths{1, 17, 3, 66, 16};

TEST_CASE("KdaLayer has the gradients of finite differences", "[layers]") {
  for (const KdaLayer& layer : {k3_layer(DType::F64), kimi_linear_layer(DType::F64)}) {
    INFO("full-rank gate: " << layer.options.full_rank_gate);
    const Tensor bounds = cu_seqlens_of({5, 1, 19});
    check_layer_gradients(documents_problem(layer, bounds), {.max_elements = 16});
  }
}

TEST_CASE("KdaLayer plans the memory that it uses, and repeats its bits", "[layers]") {
  const Tensor bounds = cu_seqlens_of(kLengths);
  for (const DType dtype : {DType::F32, DType::F64}) {
    check_layer_memory(documents_problem(k3_layer(dtype), bounds));
    check_layer_memory(documents_problem(kimi_linear_layer(dtype), bounds));
  }
}

TEST_CASE("KdaLayer keeps packed documents apart", "[layers]") {
  check_documents_alone(k3_layer(DType::F64), kLengths);
  check_documents_alone(kimi_linear_layer(DType::F64), kLengths);
  for (const DType dtype : {DType::F32, DType::F64}) {
    check_causality(k3_layer(dtype), kLengths, 19);
    check_causality(kimi_linear_layer(dtype), kLengths, 50);
  }
}

TEST_CASE("KdaLayer takes empty documents and no tokens at all", "[layers]") {
  const KdaLayer layer = k3_layer(DType::F64);
  const Tensor with_empty = cu_seqlens_of({0, 5, 0, 4, 0});
  const Tensor without = cu_seqlens_of({5, 4});
  check_equal_bits(run_layer(documents_problem(layer, with_empty)), run_layer(documents_problem(layer, without)));
  const Tensor nothing = cu_seqlens_of({0});
  check_layer_without_tokens(documents_problem(layer, nothing));
}

TEST_CASE("KdaLayer starts gates as their papers do", "[layers]") {
  const auto k3 = k3_layer(DType::F32).weights();
  CHECK(k3.a_log.init == InitKind::Zeros);
  CHECK(k3.dt_bias.init == InitKind::DtBias);
  CHECK(kimi_linear_layer(DType::F32).weights().a_log.init == InitKind::LogUniform16);
  for (const ParameterSpec& spec : {k3.a_log, k3.dt_bias, k3.o_norm, k3.q_conv}) {
    CHECK(spec.decay == WeightDecay::No);
  }
  CHECK(k3.q_proj.decay == WeightDecay::Yes);
}

}  // namespace
}  // namespace longhaul
