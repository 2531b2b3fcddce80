// See stage_balance.h.
#include "balance/stage_balance.h"

#include <algorithm>
#include <numeric>

#include "device/copy_bytes.h"
#include "tensor/host_copy.h"

namespace longhaul {
namespace {

void clear(const TensorView& counts) { std::fill_n(counts.data<int64_t>(), counts.numel(), 0); }

// to += from, then from = 0.
void move_counts(const TensorView& from, const TensorView& to) {
  for (int64_t i = 0; i < from.numel(); ++i) {
    to.data<int64_t>()[i] += std::exchange(from.data<int64_t>()[i], 0);
  }
}

std::span<const int64_t> integers(const TensorView& view) {
  return {view.data<int64_t>(), static_cast<size_t>(view.numel())};
}

int64_t total(std::span<const int64_t> counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

std::vector<double> read_bias(const TensorView& bias) {
  std::vector<double> values;
  dispatch_float(bias.dtype(), "balance", [&](auto zero) {
    values.assign(bias.data<decltype(zero)>(), bias.data<decltype(zero)>() + bias.numel());
  });
  return values;
}

void write_bias(std::span<const double> values, const TensorView& bias) {
  dispatch_float(bias.dtype(), "balance", [&](auto zero) {
    std::ranges::transform(values, bias.data<decltype(zero)>(), [](double v) { return static_cast<decltype(zero)>(v); });
  });
}

// From the stored biases, after rounding to their type.
void write_bounds(const TensorView& bias, const TensorView& bounds) {
  const auto [low, high] = margin_bounds(read_bias(bias));
  bounds.data<double>()[0] = low;
  bounds.data<double>()[1] = high;
}

}  // namespace

double BalanceReport::max_violation() const noexcept {
  double worst = 0;
  for (const LoadSummary& load : loads) {
    worst = std::max(worst, load.max_violation());
  }
  return worst;
}

StageBalance::StageBalance(const BalanceOptions& options, DType dtype, std::vector<BalancedRouter> routers, Device device)
    : options_(options), device_(device) {
  check(options, [](std::string_view key, std::string_view message) { throw RecipeError("balance.{}: {}", key, message); });
  LH_CHECK(dtype == accurate_type(dtype), "biases are kept in an accurate type, not {}", to_string(dtype));
  int64_t total_counts = 0;
  for (const BalancedRouter& router : routers) {
    LH_CHECK(1 <= router.top_k && router.top_k <= router.experts, "{}: top {} of {} experts", router.name, router.top_k,
             router.experts);
    total_experts_ += router.experts;
    total_counts += router.experts * bins_of(router);
  }
  buffer_ = Tensor::zeros(DType::I64, {total_experts_ + total_counts});
  biases_ = Tensor::zeros(dtype, {total_experts_});
  if (device.kind == DeviceKind::Cuda) {
    device_buffer_ = copy_to(buffer_, device);
    device_biases_ = copy_to(biases_, device);
  }
  const TensorView counted = device.kind == DeviceKind::Cuda ? device_buffer_.view() : buffer_.view();
  const TensorView read = device.kind == DeviceKind::Cuda ? device_biases_.view() : biases_.view();
  int64_t load_at = 0;
  int64_t counts_at = total_experts_;
  for (BalancedRouter& spec : routers) {
    const int64_t experts = spec.experts;
    const int64_t bins = bins_of(spec);
    Router router{.spec = std::move(spec),
                  .counts = buffer_.view().slice(0, counts_at, counts_at + experts * bins).reshape({experts, bins}),
                  .load = buffer_.view().slice(0, load_at, load_at + experts),
                  .bias = biases_.view().slice(0, load_at, load_at + experts),
                  .device_counts = counted.slice(0, counts_at, counts_at + experts * bins).reshape({experts, bins}),
                  .device_load = counted.slice(0, load_at, load_at + experts),
                  .device_bias = read.slice(0, load_at, load_at + experts),
                  .bounds = Tensor(DType::F64, {2}),
                  .pooled_counts = Tensor::zeros(DType::I64, {experts, bins}),
                  .pooled_load = Tensor::zeros(DType::I64, {experts}),
                  .steps_since_update = Tensor::zeros(DType::I64, {1}),
                  .exact = ExactStatistics(experts)};
    write_bounds(router.bias, router.bounds);
    routers_.push_back(std::move(router));
    load_at += experts;
    counts_at += experts * bins;
  }
}

// Without a histogram one bin is left, which counts tokens.
int64_t StageBalance::bins_of(const BalancedRouter& router) const noexcept {
  return router.method == BalanceMethod::Quantile && options_.estimator == QuantileEstimator::Histogram ? options_.bins : 1;
}

RouterBalance StageBalance::router(int64_t index) const {
  const Router& r = routers_.at(narrow<size_t>(index));
  return {.bias = r.device_bias, .counts = r.device_counts, .load = r.device_load, .low = r.bounds.values<double>()[0], .high = r.bounds.values<double>()[1]};
}

void StageBalance::observe(int64_t index, const TensorView& scores, const TensorView& cutoff) {
  LH_CHECK(options_.estimator == QuantileEstimator::Exact, "margins are kept with estimator exact only");
  Router& router = routers_.at(narrow<size_t>(index));
  if (router.spec.method == BalanceMethod::Quantile) {
    router.exact.add(scores, cutoff);
  }
}

void StageBalance::collect() {
  if (routers_.empty() || is_collected_) {
    return;
  }
  for (Router& router : routers_) {
    ++router.steps_since_update.values<int64_t>()[0];
  }
  fetch(0, is_update_due() ? buffer_.view().numel() : total_experts_);
  is_collected_ = true;
}

BalanceReport StageBalance::end_step(const BalanceCollectives& collectives) {
  BalanceReport report;
  if (routers_.empty()) {
    return report;  // a stage of dense layers; the same on all of its ranks
  }
  collect();
  is_collected_ = false;
  report.updated = is_update_due();
  collectives.all_reduce_sum(report.updated ? buffer_.view() : loads());
  for (Router& router : routers_) {
    report.loads.push_back(summarise_load(integers(router.load)));
    move_counts(router.load, router.pooled_load);
  }
  if (!report.updated) {
    return report;
  }
  absorb_histograms();
  for (Router& router : routers_) {
    update(router, collectives);
    clear_statistics(router);
  }
  return report;
}

void StageBalance::pool(const BalanceCollectives& collectives) {
  if (routers_.empty()) {
    return;
  }
  fetch(0, buffer_.view().numel());
  LH_CHECK(total(integers(loads())) == 0, "statistics are pooled between steps only");
  collectives.all_reduce_sum(histograms());
  absorb_histograms();
}

void StageBalance::restart() {
  clear(buffer_.view());
  if (device_.kind == DeviceKind::Cuda) {
    copy_between(buffer_, device_buffer_);
  }
  for (Router& router : routers_) {
    clear_statistics(router);
    write_bounds(router.bias, router.bounds);
  }
  publish();
}

void StageBalance::publish() {
  if (device_.kind == DeviceKind::Cuda) {
    copy_between(biases_, device_biases_);
  }
}

void StageBalance::publish(ExecContext& ctx) {
  if (device_.kind == DeviceKind::Cuda) {
    const TensorView from = biases_, to = device_biases_;
    copy_bytes_async(ctx.cuda_context().stream(), {.device = {}, .data = from.raw()}, {.device = device_, .data = to.raw()}, from.bytes());
  }
}

void StageBalance::fetch(int64_t begin, int64_t end) {
  if (device_.kind != DeviceKind::Cuda) {
    return;
  }
  const TensorView device = device_buffer_.view().slice(0, begin, end);
  const TensorView host = buffer_.view().slice(0, begin, end);
  copy_between(device, host);  // whose last counts were moved on
  clear_bytes({.device = device.device(), .data = device.raw()}, device.bytes());
}

bool StageBalance::is_update_due() const {
  const int64_t steps = routers_.front().steps_since_update.values<int64_t>()[0];
  for (const Router& router : routers_) {
    const int64_t own = router.steps_since_update.values<int64_t>()[0];
    LH_CHECK(own == steps, "{} is {} steps past its update, {} is {}; was the state loaded from different steps?",
             router.spec.name, own, routers_.front().spec.name, steps);
  }
  return steps >= options_.sync_every_steps;
}

void StageBalance::require_pooled() const {
  const HostCopy counted(device_.kind == DeviceKind::Cuda ? device_buffer_.view() : buffer_.view());
  if (total(integers(buffer_)) != 0 || total(integers(counted.view())) != 0) {
    throw UsageError("this rank holds routing counts that no other rank has; end the step and call pool() on all ranks first");
  }
}

void StageBalance::absorb_histograms() {
  for (Router& router : routers_) {
    move_counts(router.counts, router.pooled_counts);
  }
}

void StageBalance::clear_statistics(Router& router) {
  clear(router.pooled_counts);
  clear(router.pooled_load);
  clear(router.steps_since_update);
  router.exact.clear();
}

// A step without tokens, or with every expert chosen by every token, has nothing to say about a bias.
void StageBalance::update(Router& router, const BalanceCollectives& collectives) {
  const auto load = integers(router.pooled_load);
  const int64_t routes = total(load);
  if (router.spec.method == BalanceMethod::None || routes == 0 || router.spec.top_k == router.spec.experts) {
    return;
  }
  std::vector<double> bias = read_bias(router.bias);
  if (router.spec.method == BalanceMethod::Sign) {
    update_by_sign(bias, load, options_.sign_step);
  } else {
    update_quantile(router, collectives, bias);
  }
  write_bias(bias, router.bias);
  write_bounds(router.bias, router.bounds);
}

std::vector<double> StageBalance::quantiles_of_histograms(const Router& router, int64_t tokens) {
  const Quota quota{.routes = tokens * router.spec.top_k, .experts = router.spec.experts};
  const auto bounds = router.bounds.values<double>();
  std::vector<double> quantiles;
  for (int64_t e = 0; e < router.spec.experts; ++e) {
    const auto counts = integers(router.pooled_counts.view()[e]);
    LH_CHECK(total(counts) == tokens, "{}: {} tokens were routed, expert {} counted {}", router.spec.name, tokens, e, total(counts));
    quantiles.push_back(histogram_quantile(counts, bounds[0], bounds[1], quota));
  }
  return quantiles;
}

void StageBalance::update_quantile(Router& router, const BalanceCollectives& collectives, std::span<double> bias) {
  const int64_t tokens = div_exact(total(integers(router.pooled_load)), router.spec.top_k);
  std::vector<double> quantiles;
  if (options_.estimator == QuantileEstimator::Exact) {
    ExactStatistics pooled(router.spec.experts);
    const auto own = router.exact.margins();
    pooled.merge(collectives.all_gather ? collectives.all_gather(own) : std::vector<double>(own.begin(), own.end()));
    LH_CHECK(pooled.tokens() == tokens, "{}: {} tokens were routed, {} observed; estimator exact needs observe() for each",
             router.spec.name, tokens, pooled.tokens());
    quantiles = pooled.quantiles(router.spec.top_k);
  } else {
    quantiles = quantiles_of_histograms(router, tokens);
  }
  update_by_quantiles(bias, quantiles, options_.ema);
}

}  // namespace longhaul
