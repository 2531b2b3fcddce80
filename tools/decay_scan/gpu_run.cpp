// See gpu_run.h.
#include "tools/decay_scan/gpu_run.h"

#include <algorithm>
#include <memory>

#include "device/exec_context.h"
#include "device/gpus.h"
#include "kernels/kda/kda.h"
#include "tensor/host_copy.h"

namespace longhaul::decay {
namespace {

constexpr Device kGpu{DeviceKind::Cuda, 0};

// F64 values in another type, on the GPU.
Tensor on_gpu(const Tensor& from, DType dtype) {
  const auto values = from.values<double>();
  Tensor host(dtype, from.view().shape());
  if (dtype == DType::BF16) {
    std::transform(values.begin(), values.end(), host.values<BFloat16>().begin(), [](double x) { return BFloat16(static_cast<float>(x)); });
  } else {
    std::transform(values.begin(), values.end(), host.values<float>().begin(), [](double x) { return static_cast<float>(x); });
  }
  return copy_to(host, kGpu);
}

std::vector<double> doubles_of(const Tensor& on_device) {
  const Tensor host = copy_to(on_device, Device{});
  std::vector<double> out(static_cast<size_t>(host.view().numel()));
  if (host.view().dtype() == DType::BF16) {
    const auto values = host.values<BFloat16>();
    std::transform(values.begin(), values.end(), out.begin(), [](BFloat16 x) { return static_cast<double>(static_cast<float>(x)); });
  } else {
    const auto values = host.values<float>();
    std::copy(values.begin(), values.end(), out.begin());
  }
  return out;
}

Outputs run_on_gpu(ExecContext& ctx, const ScanProblem& p) {
  const Tensor q = on_gpu(p.q, DType::BF16), k = on_gpu(p.k, DType::BF16), v = on_gpu(p.v, DType::BF16), d_o = on_gpu(p.d_o, DType::BF16);
  const Tensor g = on_gpu(p.g, DType::F32), beta = on_gpu(p.beta, DType::F32), cu_seqlens = copy_to(p.cu_seqlens, kGpu);
  const Tensor initial = on_gpu(p.initial_state, DType::F32), dfinal = on_gpu(p.dfinal_state, DType::F32);
  const Shape keys = p.q.view().shape(), values = p.v.view().shape(), states = p.initial_state.view().shape();
  const Tensor o(DType::BF16, values, kGpu), final_state(DType::F32, states, kGpu), dinitial(DType::F32, states, kGpu);
  const Tensor chunk_states(DType::F32, {kda_state_rows(p.tokens(), p.documents(), p.key_dim), p.heads, p.key_dim, p.value_dim}, kGpu);
  const Tensor dq(DType::F32, keys, kGpu), dk(DType::F32, keys, kGpu), dv(DType::F32, values, kGpu), dg(DType::F32, keys, kGpu);
  const Tensor dbeta(DType::F32, p.beta.view().shape(), kGpu);
  kda_forward(ctx, {.q = q, .k = k, .v = v, .g = g, .beta = beta, .cu_seqlens = cu_seqlens, .scale = p.scale, .tiles = KdaTiles::Dense,
                    .initial_state = initial, .o = o, .final_state = final_state, .chunk_states = chunk_states});
  kda_backward(ctx, {.d_o = d_o, .q = q, .k = k, .v = v, .g = g, .beta = beta, .cu_seqlens = cu_seqlens, .scale = p.scale, .tiles = KdaTiles::Dense,
                     .chunk_states = chunk_states, .dfinal_state = dfinal, .dq = dq, .dk = dk, .dv = dv, .dg = dg, .dbeta = dbeta,
                     .dinitial_state = dinitial});
  ctx.cuda_context().stream().synchronize();
  return {doubles_of(o), doubles_of(final_state), doubles_of(dq), doubles_of(dk), doubles_of(dv), doubles_of(dg), doubles_of(dbeta), doubles_of(dinitial)};
}

}  // namespace

bool is_for_gpu(int64_t tile, Precision precision) { return tile == kKdaTile && precision == Precision::Bf16; }

Run gpu_run() {
  if (find_gpus().empty()) {
    throw DeviceError("--backend cuda: no GPU was found ({}); run with --backend cpu, which emulates the arithmetic", describe_gpus());
  }
  const auto ctx = std::make_shared<ExecContext>(ExecContext::cuda(kGpu));  // shared: a std::function is copied
  return [ctx](const ScanProblem& problem, const Setting&) { return run_on_gpu(*ctx, problem); };
}

}  // namespace longhaul::decay
