// Hand values, views into the wider tensors that projections write, finite differences, errors, planning.
#include "kernels/mla_pack/mla_pack.h"

#include "kernels/op_test.h"

using namespace longhaul;
using namespace longhaul::testing;

TEST_CASE("mla_pack repeats the shared part after each head's own, and sums its gradient", "[mla_pack]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor k_heads = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  const Tensor k_shared = Tensor::from<float>({90, 91}, {2, 1});
  const Tensor k = poisoned(DType::F32, {2, 2, 3});
  mla_pack_forward(ctx, {.k_heads = k_heads, .k_shared = k_shared, .k = k});
  CHECK(to_doubles(k) == std::vector<double>{1, 2, 90, 3, 4, 90, 5, 6, 91, 7, 8, 91});
  const Tensor dk_heads = poisoned(DType::F32, {2, 2, 2}), dk_shared = poisoned(DType::F32, {2, 1});
  mla_pack_backward(ctx, {.dk = k, .dk_heads = dk_heads, .dk_shared = dk_shared});
  CHECK(bitwise_equal(dk_heads, k_heads));
  CHECK(to_doubles(dk_shared) == std::vector<double>{180, 182});
}

TEST_CASE("mla_pack reads and writes views of wider tensors", "[mla_pack]") {
  ExecContext ctx = ExecContext::cpu();
  const int64_t tokens = 3, heads = 2, nope = 4, value = 5, lora = 6, shared = 2;
  // [k_n | v] for each head, and [c_kv | k_shared] for each token, as the projections write them.
  const Tensor up = random_tensor(DType::F32, {tokens, heads, nope + value}, "up");
  const Tensor down = random_tensor(DType::F32, {tokens, lora + shared}, "down");
  const Tensor k = poisoned(DType::F32, {tokens, heads, nope + shared});
  mla_pack_forward(ctx, {.k_heads = up.view().slice(2, 0, nope), .k_shared = down.view().slice(1, lora, lora + shared), .k = k});
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      CHECK(to_doubles(k.view()[t][h].slice(0, 0, nope)) == to_doubles(up.view()[t][h].slice(0, 0, nope)));
      CHECK(to_doubles(k.view()[t][h].slice(0, nope, nope + shared)) == to_doubles(down.view()[t].slice(0, lora, lora + shared)));
    }
  }
  const Tensor dup = poisoned(DType::F32, up.view().shape()), ddown = poisoned(DType::F32, down.view().shape());
  mla_pack_backward(ctx, {.dk = k, .dk_heads = dup.view().slice(2, 0, nope), .dk_shared = ddown.view().slice(1, lora, lora + shared)});
  CHECK(to_doubles(dup.view().slice(2, 0, nope)) == to_doubles(up.view().slice(2, 0, nope)));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < nope + value; ++c) {
      CHECK(std::isnan(dup.view()[t][0].data<float>()[c]) == (c >= nope));
    }
    for (int64_t c = 0; c < lora + shared; ++c) {
      CHECK(std::isnan(ddown.view()[t].data<float>()[c]) == (c < lora));
    }
  }
}

TEST_CASE("mla_pack_backward agrees with finite differences", "[mla_pack][grad]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor k_heads = random_tensor(DType::F64, {3, 4, 2}, "k_heads"), k_shared = random_tensor(DType::F64, {3, 5}, "k_shared");
  const Tensor dk = random_tensor(DType::F64, {3, 4, 7}, "dk"), k = poisoned(DType::F64, {3, 4, 7});
  const Tensor dk_heads = poisoned(DType::F64, {3, 4, 2}), dk_shared = poisoned(DType::F64, {3, 5});
  mla_pack_backward(ctx, {.dk = dk, .dk_heads = dk_heads, .dk_shared = dk_shared});
  const auto loss = [&] {
    mla_pack_forward(ctx, {.k_heads = k_heads, .k_shared = k_shared, .k = k});
    return dot(dk, k);
  };
  CHECK(gradient_error(k_heads, dk_heads, loss) < 1e-8);
  CHECK(gradient_error(k_shared, dk_shared, loss) < 1e-8);
}

TEST_CASE("mla_pack: no tokens, errors, planning", "[mla_pack]") {
  ExecContext ctx = ExecContext::cpu();
  const Tensor none3(DType::F32, {0, 2, 3}), none2(DType::F32, {0, 1}), none(DType::F32, {0, 2, 4});
  mla_pack_forward(ctx, {.k_heads = none3, .k_shared = none2, .k = none});
  mla_pack_backward(ctx, {.dk = none, .dk_heads = none3, .dk_shared = none2});
  const Tensor k_heads(DType::F32, {5, 2, 3}), k_shared(DType::F32, {5, 1}), k(DType::F32, {5, 2, 4}), wrong(DType::F32, {4, 1});
  check_shape_error("k_heads", [&] { mla_pack_forward(ctx, {.k_heads = wrong, .k_shared = k_shared, .k = k}); });
  check_shape_error("k_shared", [&] { mla_pack_forward(ctx, {.k_heads = k_heads, .k_shared = wrong, .k = k}); });
  check_shape_error("k", [&] { mla_pack_forward(ctx, {.k_heads = k_heads, .k_shared = k_shared, .k = k_heads}); });
  check_shape_error("dk", [&] { mla_pack_backward(ctx, {.dk = k_heads, .dk_heads = k_heads, .dk_shared = k_shared}); });
  ExecContext plan = ExecContext::plan(Device{DeviceKind::Cuda, 0});
  const DType bf16 = DType::BF16;
  mla_pack_forward(plan, {.k_heads = planned(bf16, {5, 2, 3}), .k_shared = planned(bf16, {5, 1}), .k = planned(bf16, {5, 2, 4})});
  mla_pack_backward(plan, {.dk = planned(bf16, {5, 2, 4}), .dk_heads = planned(bf16, {5, 2, 3}), .dk_shared = planned(bf16, {5, 1})});
}
