// Multi-head latent attention, in the forms of Kimi K3 and Kimi Linear and the mixed ones. Golden values are in tests/golden.
#include "layers/mla/mla_layer.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/support/layer_documents.h"

namespace longhaul {
namespace {

using namespace testing;

struct Form {
  int64_t q_lora_rank;
  bool output_gate;
};
constexpr Form kForms[] = {{5, true}, {0, false}, {0, true}, {5, false}};

MlaLayer layer_of(const Form& form, DType dtype, int64_t shared_dim = 2) {
  return {{.hidden = 10,
           .heads = 3,
           .q_lora_rank = form.q_lora_rank,
           .kv_lora_rank = 6,
           .nope_dim = 4,
           .shared_dim = shared_dim,
           .v_dim = 5,
           .output_gate = form.output_gate,
           .dtype = dtype}};
}

const std::vector<int64_t> kLengths{1, 20, 2, 70, 9};

TEST_CASE("MlaLayer has the gradients of finite differences", "[layers]") {
  const Tensor bounds = cu_seqlens_of({6, 1, 11});
  for (const Form& form : kForms) {
    INFO("query rank " << form.q_lora_rank << ", gate " << form.output_gate);
    check_layer_gradients(documents_problem(layer_of(form, DType::F64), bounds), {.max_elements = 24});
  }
}

TEST_CASE("MlaLayer works without a shared part of the key", "[layers]") {
  const Tensor bounds = cu_seqlens_of({4, 3});
  check_layer_gradients(documents_problem(layer_of(kForms[0], DType::F64, 0), bounds), {.max_elements = 8});
}

TEST_CASE("MlaLayer plans the memory that it uses, and repeats its bits", "[layers]") {
  const Tensor bounds = cu_seqlens_of(kLengths);
  for (const DType dtype : {DType::F32, DType::F64}) {
    for (const Form& form : kForms) {
      check_layer_memory(documents_problem(layer_of(form, dtype), bounds));
    }
  }
}

TEST_CASE("MlaLayer keeps packed documents apart", "[layers]") {
  for (const Form& form : kForms) {
    check_documents_alone(layer_of(form, DType::F64), kLengths);
  }
  for (const DType dtype : {DType::F32, DType::F64}) {
    check_causality(layer_of(kForms[0], dtype), kLengths, 5);
    check_causality(layer_of(kForms[1], dtype), kLengths, 60);
  }
}

TEST_CASE("MlaLayer takes empty documents and no tokens at all", "[layers]") {
  const MlaLayer layer = layer_of(kForms[0], DType::F64);
  const Tensor with_empty = cu_seqlens_of({0, 5, 0, 4, 0});
  const Tensor without = cu_seqlens_of({5, 4});
  check_equal_bits(run_layer(documents_problem(layer, with_empty)), run_layer(documents_problem(layer, without)));
  const Tensor nothing = cu_seqlens_of({0});
  check_layer_without_tokens(documents_problem(layer, nothing));
}

// The first token of a document attends to itself alone, so its attention output is its own value: with one head,
// a value projection and an output projection that copy, and no gate, y is the normed latent itself.
TEST_CASE("MlaLayer's first token of a document is its own value", "[layers]") {
  constexpr int64_t kWidth = 4;
  const MlaLayer layer{{.hidden = kWidth,
                        .heads = 1,
                        .kv_lora_rank = kWidth,
                        .nope_dim = 1,
                        .shared_dim = 1,
                        .v_dim = kWidth,
                        .output_gate = false,
                        .dtype = DType::F64}};
  const Tensor bounds = cu_seqlens_of({2, 3});
  auto problem = documents_problem(layer, bounds);
  const auto write_identity = [&](const char* name, int64_t first_row) {
    const auto values = problem.weights.tensors.at(name).values<double>();
    std::fill(values.begin() + first_row * kWidth, values.begin() + (first_row + kWidth) * kWidth, 0.0);
    for (int64_t i = 0; i < kWidth; ++i) {
      values[static_cast<size_t>((first_row + i) * kWidth + i)] = 1;
    }
  };
  write_identity("kv_a_proj_with_mqa.weight", 0);
  write_identity("kv_b_proj.weight", 1);  // behind the one row of the key
  write_identity("o_proj.weight", 0);
  std::ranges::fill(problem.weights.tensors.at("kv_a_layernorm.weight").values<double>(), 1.0);
  const LayerResult result = run_layer(problem);
  for (const int64_t first : {0, 2}) {
    double square = 0;
    const auto* x = problem.x.view()[first].data<double>();
    for (int64_t i = 0; i < kWidth; ++i) {
      square += x[i] * x[i];
    }
    for (int64_t i = 0; i < kWidth; ++i) {
      const double wanted = x[i] / std::sqrt(square / kWidth + layer.options.latent_norm_eps);
      CHECK(std::abs(result.y.view()[first].data<double>()[i] - wanted) < 1e-14);
    }
  }
}

}  // namespace
}  // namespace longhaul
