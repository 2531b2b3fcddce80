// The entry of kda_cuda.h with raw inputs, where norms and gates are part of the kernels, against the operations one after the other
// on the CPU in double: forward, and gradients of raw q, k, gate and beta, and of the gate's parameters.
#include <cmath>

#include "kernels/decay_gate/decay_gate.h"
#include "kernels/gpu_test.h"
#include "kernels/kda/cuda/kda_cuda.h"
#include "kernels/kda/kda_hopper.h"
#include "kernels/kda/kda_problem.h"
#include "kernels/l2_norm/l2_norm.h"
#include "kernels/sigmoid/sigmoid.h"

namespace longhaul {
namespace {

using namespace longhaul::testing;
using kda::cuda::Saving;

Tensor in_type(const TensorView& from, DType dtype) {
  if (dtype != DType::BF16) {
    return converted(from, dtype);
  }
  const std::vector<double> values = to_doubles(from);
  Tensor to(DType::BF16, from.shape());
  for (size_t i = 0; i < values.size(); ++i) {
    to.values<BFloat16>()[i] = BFloat16(static_cast<float>(values[i]));
  }
  return to;
}

// In double, holding values of the types that the GPU has.
struct RawCase {
  KdaProblem problem;  // its q, k, g and beta follow from:
  Tensor q, k, gate, beta_logits, a_log, dt_bias;
  Tensor d_o, dfinal_state;

  explicit RawCase(const KdaSizes& sizes) : problem(sizes) {
    const Shape wide = problem.q.view().shape(), narrow = problem.beta.view().shape();
    const auto random = [](const Shape& shape, const char* name, double stddev, DType dtype) {
      return converted(in_type(random_tensor(DType::F64, shape, name, stddev), dtype), DType::F64);
    };
    q = random(wide, "fused.q", 2, DType::BF16);
    k = random(wide, "fused.k", 0.3, DType::BF16);
    gate = random(wide, "fused.gate", 1.5, DType::BF16);
    beta_logits = random(narrow, "fused.beta", 1.5, DType::BF16);
    a_log = random({sizes.heads}, "fused.a_log", 0.3, DType::F32);
    dt_bias = random({sizes.heads * sizes.key_dim}, "fused.dt_bias", 0.5, DType::F32);
    d_o = random(wide, "fused.d_o", 1, DType::BF16);
    dfinal_state = random(problem.initial_state.view().shape(), "fused.dfinal_state", 0.3, DType::F32);
    problem.v = converted(in_type(problem.v, DType::BF16), DType::F64);
    problem.initial_state = converted(in_type(problem.initial_state, DType::F32), DType::F64);
  }
};

using Outputs = std::vector<std::pair<std::string, Tensor>>;

Outputs run_on_cpu(RawCase& c) {
  ExecContext ctx = ExecContext::cpu();
  KdaProblem& p = c.problem;
  const Shape wide = p.q.view().shape(), narrow = p.beta.view().shape();
  Tensor q_inverse(DType::F64, narrow), k_inverse(DType::F64, narrow);
  l2_norm_forward(ctx, {.x = c.q, .y = p.q, .inv_norm = q_inverse});
  l2_norm_forward(ctx, {.x = c.k, .y = p.k, .inv_norm = k_inverse});
  decay_gate_forward(ctx, {.z = c.gate, .a_log = c.a_log, .dt_bias = c.dt_bias, .g = p.g});
  sigmoid_forward(ctx, {.x = c.beta_logits, .y = p.beta});
  KdaResult forward = run_chunkwise(p);
  KdaGradients back = run_backward(p, c.d_o, c.dfinal_state);
  Tensor dq(DType::F64, wide), dk(DType::F64, wide), dgate(DType::F64, wide), dbeta(DType::F64, narrow);
  Tensor da_log = Tensor::zeros(DType::F64, c.a_log.view().shape()), ddt_bias = Tensor::zeros(DType::F64, c.dt_bias.view().shape());
  l2_norm_backward(ctx, {.dy = back.dq, .y = p.q, .inv_norm = q_inverse, .dx = dq});
  l2_norm_backward(ctx, {.dy = back.dk, .y = p.k, .inv_norm = k_inverse, .dx = dk});
  decay_gate_backward(ctx, {.dg = back.dg, .z = c.gate, .a_log = c.a_log, .dt_bias = c.dt_bias, .dz = dgate, .da_log = da_log,
                            .ddt_bias = ddt_bias});
  sigmoid_backward(ctx, {.dy = back.dbeta, .y = p.beta, .dx = dbeta});
  Outputs r;
  r.emplace_back("o", std::move(forward.o));
  r.emplace_back("final_state", std::move(forward.final_state));
  r.emplace_back("dq", std::move(dq));
  r.emplace_back("dk", std::move(dk));
  r.emplace_back("dv", std::move(back.dv));
  r.emplace_back("dgate", std::move(dgate));
  r.emplace_back("dbeta_logits", std::move(dbeta));
  r.emplace_back("da_log", std::move(da_log));
  r.emplace_back("ddt_bias", std::move(ddt_bias));
  r.emplace_back("dinitial_state", std::move(back.dinitial_state));
  return r;
}

Outputs run_on_gpu(const RawCase& c, Saving saving, ExecContext& ctx) {
  const KdaProblem& p = c.problem;
  const auto given = [](const Tensor& x, DType dtype) { return copy_to(in_type(x, dtype), kGpu); };
  const auto empty = [](DType dtype, const Shape& shape) { return copy_to(in_type(poisoned(DType::F32, shape), dtype), kGpu); };
  const Tensor q = given(c.q, DType::BF16), k = given(c.k, DType::BF16), v = given(p.v, DType::BF16), gate = given(c.gate, DType::BF16);
  const Tensor beta_logits = given(c.beta_logits, DType::BF16), d_o = given(c.d_o, DType::BF16);
  const Tensor a_log = given(c.a_log, DType::F32), dt_bias = given(c.dt_bias, DType::F32);
  const Tensor initial = given(p.initial_state, DType::F32), dfinal = given(c.dfinal_state, DType::F32);
  const Tensor cu_seqlens = copy_to(p.cu_seqlens, kGpu);
  const Shape wide = p.q.view().shape(), narrow = p.beta.view().shape(), states = p.initial_state.view().shape();
  const kda::cuda::Sizes sizes{.tokens = p.sizes.tokens(), .heads = p.sizes.heads, .head_dim = p.sizes.key_dim,
                               .documents = p.sizes.documents(), .saving = saving};
  const Tensor saved(DType::U8, {kda::cuda::saved_bytes(sizes)}, kGpu);
  const Tensor scratch(DType::U8, {std::max(kda::cuda::forward_workspace_bytes(sizes), kda::cuda::backward_workspace_bytes(sizes))}, kGpu);
  const int64_t stride = p.sizes.heads * p.sizes.key_dim;
  const auto floats = [](const Tensor& x) { return static_cast<float*>(x.view().raw()); };
  const kda::cuda::InputArrays in{.q = q.view().raw(), .k = k.view().raw(), .v = v.view().raw(),
                                  .q_stride = stride, .k_stride = stride, .v_stride = stride, .g_stride = stride,
                                  .gate = gate.view().raw(), .beta_logits = beta_logits.view().raw(), .a_log = floats(a_log),
                                  .dt_bias = floats(dt_bias), .cu_seqlens = static_cast<const int64_t*>(cu_seqlens.view().raw()),
                                  .scale = static_cast<float>(p.scale)};
  Outputs r;
  const auto output = [&](const char* name, DType dtype, const Shape& shape) {
    r.emplace_back(name, empty(dtype, shape));
    return r.back().second.view().raw();
  };
  void* o = output("o", DType::BF16, wide);
  void* final_state = output("final_state", DType::F32, states);
  REQUIRE(kda::cuda::forward({.sizes = sizes, .in = in, .initial_state = floats(initial), .o = o, .o_stride = stride,
                              .final_state = static_cast<float*>(final_state), .saved = saved.view().raw(), .workspace = scratch.view().raw(),
                              .stream = ctx.cuda_context().stream().handle()}) == 0);
  void* dq = output("dq", DType::BF16, wide);
  void* dk = output("dk", DType::BF16, wide);
  void* dv = output("dv", DType::BF16, wide);
  void* dgate = output("dgate", DType::BF16, wide);
  void* dbeta = output("dbeta_logits", DType::BF16, narrow);
  void* da_log = output("da_log", DType::F32, c.a_log.view().shape());
  void* ddt_bias = output("ddt_bias", DType::F32, c.dt_bias.view().shape());
  void* dinitial = output("dinitial_state", DType::F32, states);
  REQUIRE(kda::cuda::backward({.sizes = sizes, .in = in, .d_o = d_o.view().raw(), .d_o_stride = stride, .dfinal_state = floats(dfinal),
                               .saved = saved.view().raw(), .dq = dq, .dk = dk, .dv = dv, .dg = dgate, .dbeta = dbeta,
                               .da_log = static_cast<float*>(da_log), .ddt_bias = static_cast<float*>(ddt_bias),
                               .dinitial_state = static_cast<float*>(dinitial), .workspace = scratch.view().raw(),
                               .stream = ctx.cuda_context().stream().handle()}) == 0);
  ctx.cuda_context().stream().synchronize();
  for (auto& [name, tensor] : r) {
    tensor = copy_to(tensor, Device{});
  }
  return r;
}

// Relative RMS, as for the operations alone; sums over all tokens of either sign lose more.
double bound_of(const std::string& name) {
  if (name == "o" || name == "final_state") {
    return 0.005;
  }
  return name == "dq" || name == "dk" || name == "dv" || name == "dinitial_state" ? 0.008 : 0.02;
}

}  // namespace

TEST_CASE("kda on Hopper from raw inputs equals the operations in turn on the CPU in double", "[kda][cuda]") {
  if (find_gpus().empty() || !cuda::has_kda_hopper(kGpu)) {
    SKIP("no Hopper GPU");
  }
  ExecContext ctx = ExecContext::cuda(kGpu);
  for (const int64_t dim : {64, 128}) {
    RawCase c({.lengths = {129, 0, 1, 15, 64, 65, 200}, .heads = 3, .key_dim = dim, .value_dim = dim});
    const Outputs wanted = run_on_cpu(c);
    const Outputs got = run_on_gpu(c, Saving::States, ctx), again = run_on_gpu(c, Saving::Images, ctx);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Difference diff = difference(got[i].second, wanted[i].second);
      fmt::print("parity {:<22} {:<14} {:<5} {:.2e}\n", "kda_fused", wanted[i].first, "bf16", diff.relative_l2);
      INFO("dim " << dim << ", " << wanted[i].first << ": " << diff.text);
      CHECK(got[i].first == wanted[i].first);
      CHECK(diff.within(bound_of(wanted[i].first)));
      CHECK(bitwise_equal(got[i].second, again[i].second));
    }
  }
}

}  // namespace longhaul
