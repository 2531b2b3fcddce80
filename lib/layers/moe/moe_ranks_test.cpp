// Experts split over ranks, which are threads here: outputs and input gradients are those of one rank bit for bit, and the
// gradients are its up to the order of a sum. Loads are uneven; ranks may have no tokens, and experts none either.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <numeric>

#include "comm/thread_host_comm.h"
#include "layers/moe/moe_test_support.h"

namespace longhaul {
namespace {

using namespace testing;
using MoeProblem = LayerProblem<OnExperts>;

// Rank `group.rank`'s part of the problem: its tokens [first, last) and its experts.
LayerResult run_part(const MoeProblem& whole, const Group& group, int64_t first, int64_t last) {
  const MoeLayer& layer = whole.subject.layer;
  const int64_t local = layer.options.num_experts / group.size;
  MoeLayer::Weights<TensorView> w = whole.weights.views;
  for (TensorView* stack : {&w.w1, &w.w2, &w.w3}) {
    *stack = stack->slice(0, group.rank * local, (group.rank + 1) * local);
  }
  const TensorView x = whole.x.view().slice(0, first, last), dy = whole.dy.view().slice(0, first, last);
  LayerResult result{.y = nan_tensor(whole.dtype(), x.shape()), .dx = nan_tensor(whole.dtype(), x.shape()), .gradients = {}};
  auto gradients = gradient_set<MoeLayer>(layer.options, layer.weights(group), 0);
  ExecContext ctx(Device{}, ExecContext::Mode::Execute, nan_arena("scratch", 1 << 20));
  Arena keep = nan_arena("keep", 1 << 20);
  const MoeLayer::Saved saved = layer.forward(ctx, keep, group, w, whole.subject.router, x, result.y);
  layer.backward(ctx, group, w, x, saved, dy, result.dx, gradients.views);
  result.gradients = std::move(gradients.tensors);
  return result;
}

std::vector<LayerResult> run_parts(const MoeProblem& whole, const std::vector<int64_t>& tokens_of_rank) {
  std::vector<LayerResult> results(tokens_of_rank.size());
  run_ranks(narrow<int>(tokens_of_rank.size()), [&](HostComm& host, int rank) {
    const auto device = host.make_cpu_device_comm({.name = "expert"});
    const Group group{"expert", rank, host.size(), host, *device};
    const int64_t first = std::accumulate(tokens_of_rank.begin(), tokens_of_rank.begin() + rank, int64_t{0});
    results[static_cast<size_t>(rank)] = run_part(whole, group, first, first + tokens_of_rank[static_cast<size_t>(rank)]);
  });
  return results;
}

// A weight's gradient over all ranks: experts one after the other, everything else summed.
std::vector<double> joined(const std::vector<LayerResult>& parts, const std::string& name) {
  std::vector<double> all = to_doubles(parts[0].gradients.at(name));
  for (size_t r = 1; r < parts.size(); ++r) {
    const std::vector<double> mine = to_doubles(parts[r].gradients.at(name));
    if (name.starts_with("experts.")) {
      all.insert(all.end(), mine.begin(), mine.end());
    } else {
      std::transform(all.begin(), all.end(), mine.begin(), all.begin(), std::plus<>());
    }
  }
  return all;
}

void check_ranks(const MoeLayer& layer, const TensorView& bias, const std::vector<int64_t>& tokens_of_rank) {
  INFO("tokens of the ranks: " << fmt::format("{}", fmt::join(tokens_of_rank, ", ")) << ", latent " << layer.options.latent);
  const Alone alone;
  const int64_t tokens = std::accumulate(tokens_of_rank.begin(), tokens_of_rank.end(), int64_t{0});
  const MoeProblem whole(OnExperts{layer, alone.group, router_with(bias)}, tokens);
  const LayerResult one = run_layer(whole);
  const std::vector<LayerResult> parts = run_parts(whole, tokens_of_rank);
  int64_t first = 0;
  for (size_t r = 0; r < parts.size(); ++r) {
    INFO("rank " << r);
    CHECK(bitwise_equal(parts[r].y, one.y.view().slice(0, first, first + tokens_of_rank[r])));
    CHECK(bitwise_equal(parts[r].dx, one.dx.view().slice(0, first, first + tokens_of_rank[r])));
    first += tokens_of_rank[r];
  }
  for (const auto& [name, wanted] : one.gradients) {
    const Difference d = difference(Tensor::from(joined(parts, name), wanted.view().shape()), wanted);
    INFO(name << ": " << d.text);
    CHECK(d.within(1e-12));
  }
}

TEST_CASE("experts on 2 and 4 ranks compute what one rank computes", "[layers]") {
  for (const DType dtype : {DType::F64, DType::F32}) {
    for (const MoeLayer& layer : {latent_moe(dtype), plain_moe(dtype)}) {
      const Tensor bias = bias_of(layer, "bias", 0.3);
      check_ranks(layer, bias, {12, 12});
      check_ranks(layer, bias, {23, 5});
      check_ranks(layer, bias, {0, 19});
      check_ranks(layer, bias, {9, 0, 1, 30});
    }
  }
}

TEST_CASE("all tokens may go to the experts of one rank", "[layers]") {
  // The other ranks receive nothing and still take part in every exchange.
  for (const MoeLayer& layer : {latent_moe(DType::F64), plain_moe(DType::F64)}) {
    Tensor bias = Tensor::zeros(DType::F64, {8});
    set_biases(bias, {0, 0, 0, 0, -9, -9, -9, -9});
    check_ranks(layer, bias, {14, 10});
    check_ranks(layer, bias, {7, 0, 9, 3});

    const Alone alone;
    const MoeProblem whole(OnExperts{layer, alone.group, router_with(bias)}, 24);
    const std::vector<LayerResult> parts = run_parts(whole, {14, 10});
    for (const char* name : {"experts.w1.weight", "experts.w2.weight", "experts.w3.weight"}) {
      const Tensor& idle = parts[1].gradients.at(name);
      CHECK(to_doubles(idle) == std::vector<double>(static_cast<size_t>(idle.view().numel())));
    }
  }
}

TEST_CASE("no rank has tokens", "[layers]") {
  const MoeLayer layer = latent_moe(DType::F64);
  const Tensor bias = bias_of(layer, "bias", 0.3);
  check_ranks(layer, bias, {0, 0});
}

}  // namespace
}  // namespace longhaul
