// Times of operations on a GPU at the sizes of a model of one billion parameters with 32768 tokens a step (hidden 1024, 64
// experts of width 512, top-4, vocabulary 32768), as bytes a second or operations a second. Hidden: run with [.bench].
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "device/gpus.h"
#include "kernels/adamw/adamw.h"
#include "kernels/attn_res_mix/attn_res_mix.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gated_activation/gated_activation.h"
#include "kernels/gated_rms_norm/gated_rms_norm.h"
#include "kernels/grouped_linear/grouped_linear.h"
#include "kernels/linear/linear.h"
#include "kernels/permute/permute.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/route_histogram/route_histogram.h"
#include "kernels/router/router.h"
#include "kernels/short_conv/short_conv.h"
#include "tensor/host_copy.h"

namespace longhaul {
namespace {

constexpr Device kGpu{DeviceKind::Cuda, 0};
constexpr int64_t kTokens = 32768, kHidden = 1024, kExperts = 64, kTopK = 4, kWidth = 512, kVocab = 32768, kHeads = 8, kHeadDim = 128;
constexpr int64_t kSlots = kTokens * kTopK;

class Bench {
 public:
  Bench() : cuda_(kGpu), ctx_(kGpu, ExecContext::Mode::Execute, Arena(kGpu, "scratch", int64_t{2} << 30, Arena::Growth::Chunked), &cuda_) {}

  TensorView random(DType dtype, const Shape& shape, double stddev = 1) {
    Tensor& tensor = tensors_.emplace_back(dtype, shape, kGpu);
    fill_normal(ctx_, tensor, {.seed = 1, .stream = tensors_.size()}, 0, stddev);
    return tensor;
  }
  TensorView zeros(DType dtype, const Shape& shape) {
    Tensor& tensor = tensors_.emplace_back(dtype, shape, kGpu);
    fill(ctx_, tensor, 0);
    return tensor;
  }
  TensorView integers(const std::vector<int32_t>& values, const Shape& shape) {
    return tensors_.emplace_back(copy_to(Tensor::from(values, shape), kGpu));
  }
  TensorView longs(const std::vector<int64_t>& values) {
    return tensors_.emplace_back(copy_to(Tensor::from(values, {static_cast<int64_t>(values.size())}), kGpu));
  }

  // The median of several rounds; `work` is bytes or floating-point operations of one call.
  void time(const std::string& name, double work, const char* unit, const std::function<void(ExecContext&)>& op) {
    constexpr int kRounds = 7, kCalls = 10;
    std::vector<double> seconds;
    for (int round = 0; round <= kRounds; ++round) {  // the first warms up
      cuda_.stream().synchronize();
      const auto start = std::chrono::steady_clock::now();
      for (int call = 0; call < kCalls; ++call) {
        op(ctx_);
      }
      cuda_.stream().synchronize();
      if (round > 0) {
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kCalls);
      }
    }
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[kRounds / 2];
    fmt::print("bench {:<26} {:8.1f} us {:8.2f} T{}/s\n", name, median * 1e6, work / median * 1e-12, unit);
  }

 private:
  CudaContext cuda_;
  ExecContext ctx_;
  std::deque<Tensor> tensors_;
};

}  // namespace

TEST_CASE("speed of operations on the GPU", "[.bench]") {
  if (find_gpus().empty()) {
    SKIP("no GPU");
  }
  Bench b;
  constexpr DType kCompute = DType::BF16;
  const double row_bytes = 2.0 * kTokens * kHidden, product = 2.0 * kTokens * kHidden * kHidden, grouped = 2.0 * kSlots * kWidth * kWidth;
  const TensorView x = b.random(kCompute, {kTokens, kHidden}), dy = b.random(kCompute, {kTokens, kHidden}), out = b.zeros(kCompute, {kTokens, kHidden});
  const TensorView exact = b.random(DType::F32, {kTokens, kHidden});
  const TensorView scale = b.random(kCompute, {kHidden}), query = b.random(kCompute, {kHidden}, 0.05), dscale = b.zeros(DType::F32, {kHidden});
  const TensorView dquery = b.zeros(DType::F32, {kHidden}), inv_rms = b.zeros(DType::F32, {kTokens});
  const TensorView weight = b.random(kCompute, {kHidden, kHidden}, 0.03), dweight = b.zeros(DType::F32, {kHidden, kHidden});

  b.time("copy", 2 * row_bytes, "B", [&](ExecContext& c) { copy(c, x, out); });
  b.time("add into f32", 5 * row_bytes, "B", [&](ExecContext& c) { add(c, x, exact); });
  b.time("rms_norm forward", 2 * row_bytes, "B", [&](ExecContext& c) { rms_norm_forward(c, {.x = x, .scale = scale, .y = out, .inv_rms = inv_rms}); });
  b.time("rms_norm backward", 3 * row_bytes, "B",
         [&](ExecContext& c) { rms_norm_backward(c, {.dy = dy, .x = x, .scale = scale, .inv_rms = inv_rms, .dx = out, .dscale = dscale}); });
  {
    const Shape cube{kTokens, kHeads, kHeadDim};
    const TensorView head_scale = b.random(DType::F32, {kHeadDim}), head_inv = b.zeros(DType::F32, {kTokens, kHeads}), dhead = b.zeros(DType::F32, {kHeadDim});
    const TensorView d_o = b.zeros(kCompute, cube);
    b.time("gated_rms_norm forward", 3 * row_bytes, "B",
           [&](ExecContext& c) { gated_rms_norm_forward(c, {.o = x.reshape(cube), .scale = head_scale, .gate = dy, .y = out, .inv_rms = head_inv}); });
    b.time("gated_rms_norm backward", 5 * row_bytes, "B", [&](ExecContext& c) {
      gated_rms_norm_backward(c, {.dy = dy, .o = x.reshape(cube), .scale = head_scale, .gate = dy, .inv_rms = head_inv, .d_o = d_o, .dgate = out, .dscale = dhead});
    });
    const TensorView taps = b.random(DType::F32, {kHidden, 4}), dtaps = b.zeros(DType::F32, {kHidden, 4}), bounds = b.longs({0, 8192, 16384, 24576, kTokens});
    b.time("short_conv forward", 2 * row_bytes, "B", [&](ExecContext& c) { short_conv_forward(c, {.x = x, .weight = taps, .cu_seqlens = bounds, .y = out}); });
    b.time("short_conv backward", 3 * row_bytes, "B",
           [&](ExecContext& c) { short_conv_backward(c, {.dy = dy, .x = x, .weight = taps, .cu_seqlens = bounds, .dx = out, .dweight = dtaps}); });
  }
  {
    std::vector<TensorView> sources, dsources;
    for (int i = 0; i < 5; ++i) {
      sources.push_back(b.random(kCompute, {kTokens, kHidden}));
      dsources.push_back(b.zeros(DType::F32, {kTokens, kHidden}));
    }
    b.time("attn_res_mix forward, 5", 6 * row_bytes, "B",
           [&](ExecContext& c) { attn_res_mix_forward(c, {.sources = sources, .norm_scale = scale, .query = query, .y = out}); });
    b.time("attn_res_mix backward, 5", 26 * row_bytes, "B", [&](ExecContext& c) {
      attn_res_mix_backward(c, {.dy = dy, .sources = sources, .norm_scale = scale, .query = query, .dsources = dsources, .dnorm_scale = dscale, .dquery = dquery});
    });
  }
  b.time("linear forward", product, "FLOP", [&](ExecContext& c) { linear_forward(c, {.x = x, .weight = weight, .y = out}); });
  b.time("linear backward", 2 * product, "FLOP",
         [&](ExecContext& c) { linear_backward(c, {.dy = dy, .x = x, .weight = weight, .dx = out, .dweight = dweight}); });
  {
    std::vector<int64_t> bounds{0};
    for (int64_t e = 0; e < kExperts; ++e) {
      bounds.push_back(bounds.back() + kSlots / kExperts + (e % 2 == 0 ? 300 : -300));
    }
    const TensorView offsets = b.longs(bounds), rows = b.random(kCompute, {kSlots, kWidth}), drows = b.random(kCompute, {kSlots, kWidth});
    const TensorView result = b.zeros(kCompute, {kSlots, kWidth}), gate = b.random(kCompute, {kSlots, kWidth});
    const TensorView experts = b.random(kCompute, {kExperts, kWidth, kWidth}, 0.03), dexperts = b.zeros(DType::F32, {kExperts, kWidth, kWidth});
    b.time("grouped_linear forward", grouped, "FLOP",
           [&](ExecContext& c) { grouped_linear_forward(c, {.x = rows, .weight = experts, .offsets = offsets, .y = result}); });
    b.time("grouped_linear dx", grouped, "FLOP",
           [&](ExecContext& c) { grouped_linear_backward(c, {.dy = drows, .x = rows, .weight = experts, .offsets = offsets, .dx = result}); });
    b.time("grouped_linear dweight", grouped, "FLOP",
           [&](ExecContext& c) { grouped_linear_backward(c, {.dy = drows, .x = rows, .weight = experts, .offsets = offsets, .dweight = dexperts}); });
    b.time("situ_glu forward", 6.0 * kSlots * kWidth, "B", [&](ExecContext& c) { gated_activation_forward(c, {.gate = rows, .up = gate, .y = result}); });
    b.time("situ_glu backward", 10.0 * kSlots * kWidth, "B",
           [&](ExecContext& c) { gated_activation_backward(c, {.dy = drows, .gate = rows, .up = gate, .dgate = result, .dup = gate}); });

    std::vector<int32_t> routes, ids;
    for (int64_t i = 0; i < kSlots; ++i) {
      routes.push_back(static_cast<int32_t>(i * 2654435761 % kExperts));
    }
    for (int64_t t = 0; t < kTokens; ++t) {
      ids.push_back(static_cast<int32_t>(t * t % 9973));
    }
    const TensorView logits = b.random(DType::F32, {kTokens, kExperts}), bias = b.zeros(DType::F32, {kExperts}), scores = b.zeros(DType::F32, {kTokens, kExperts});
    const TensorView chosen = b.integers(routes, {kTokens, kTopK}), weights = b.random(DType::F32, {kTokens, kTopK}), cutoff = b.zeros(DType::F32, {kTokens});
    const TensorView row_of_slot = b.zeros(DType::I64, {kSlots}), starts = b.zeros(DType::I64, {kExperts + 1}), z = b.random(kCompute, {kTokens, kWidth});
    const TensorView counts = b.zeros(DType::I64, {kExperts, 1000}), load = b.zeros(DType::I64, {kExperts}), dweights = b.zeros(DType::F32, {kTokens, kTopK});
    b.time("plan_permutation", 12.0 * kSlots, "B",
           [&](ExecContext& c) { plan_permutation(c, {.experts = chosen, .num_experts = kExperts, .row_of_slot = row_of_slot, .offsets = starts}); });
    b.time("permute forward", 4.0 * kSlots * kWidth, "B", [&](ExecContext& c) { permute_forward(c, {.x = z, .row_of_slot = row_of_slot, .top_k = kTopK, .y = result}); });
    b.time("combine forward", 2.0 * (kSlots + kTokens) * kWidth, "B",
           [&](ExecContext& c) { combine_forward(c, {.x = rows, .row_of_slot = row_of_slot, .weights = weights, .y = z}); });
    b.time("combine backward", 2.0 * (2 * kSlots + kTokens) * kWidth, "B", [&](ExecContext& c) {
      combine_backward(c, {.dy = z, .x = rows, .row_of_slot = row_of_slot, .weights = weights, .dx = result, .dweights = dweights});
    });
    b.time("route_histogram", 4.0 * kTokens * kExperts, "B", [&](ExecContext& c) {
      route_histogram(c, {.scores = logits, .cutoff = cutoff, .experts = chosen, .low = -3, .high = 3, .counts = counts, .load = load});
    });
    b.time("router forward", 8.0 * kTokens * kExperts, "B", [&](ExecContext& c) {
      router_forward(c, {.logits = logits, .bias = bias, .top_k = kTopK, .scores = scores, .experts = chosen, .weights = weights, .cutoff = cutoff});
    });
    const TensorView token_ids = b.integers(ids, {kTokens}), table = b.random(kCompute, {kVocab, kHidden}, 0.02), dtable = b.zeros(DType::F32, {kVocab, kHidden});
    b.time("embedding backward", 10.0 * kTokens * kHidden, "B", [&](ExecContext& c) { embedding_backward(c, {.dy = dy, .ids = token_ids, .dtable = dtable}); });
    const TensorView loss = b.zeros(DType::F64, {1});
    b.time("linear_cross_entropy", 6.0 * kTokens * kHidden * kVocab, "FLOP", [&](ExecContext& c) {
      linear_cross_entropy(c, {.x = x, .weight = table, .targets = token_ids, .grad_scale = 1e-4, .chunk_tokens = 4096, .loss_sum = loss, .dx = out, .dweight = dtable});
    });
    const TensorView m = b.zeros(DType::F32, {kVocab, kHidden}), v = b.zeros(DType::F32, {kVocab, kHidden}), master = b.random(DType::F32, {kVocab, kHidden});
    b.time("adamw", 28.0 * kVocab * kHidden, "B",
           [&](ExecContext& c) { adamw(c, {.parameter = master, .gradient = dtable, .m = m, .v = v, .learning_rate = 1e-4, .step = 2}); });
  }
}

}  // namespace longhaul
