// Load balancing of all routers of one pipeline stage: their selection biases, the statistics that a step gathers, and
// the update at the step's end.
//
//   for every micro-batch of the step:  forward with router(i).bias, counting into router(i).counts and .load
//   after all forward and backward passes:  balance.collect(); report = balance.end_step(all_reduce_sum)
//
// A bias is frozen within a step, recomputation included, and what a step has seen takes effect in the next one. Counts
// are integers summed over all ranks that hold different tokens, so the biases are the same on every rank and do not
// depend on layout, micro-batches or order. All routers share one contiguous buffer, [loads | histograms], and every
// end_step makes exactly one all-reduce: of the whole buffer at an update, of the small front part between updates.
//
// On a GPU the routers read and count in device memory; the state here stays on the host. collect and pool fetch what is
// needed, histograms at updates only, and publish brings changed biases back. Between collect and publish the GPU is free
// for other work: the update of the weights.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "balance/balance_options.h"
#include "balance/exact_statistics.h"
#include "balance/quantile.h"
#include "device/exec_context.h"
#include "tensor/tensor.h"

namespace longhaul {

struct BalancedRouter {
  std::string name;  // of its module, "model.layers.1.block_sparse_moe.gate"; checkpoint names begin with it
  int64_t experts = 0;
  int64_t top_k = 1;
  BalanceMethod method = BalanceMethod::Quantile;  // may differ between the layers of a stage
};

// What a forward pass needs of one router; the fields of the same names of the MoE layer's router state. Leave counts
// and load out when not training, and count no token twice.
struct RouterBalance {
  TensorView bias;    // [experts], accurate type; larger attracts
  TensorView counts;  // i64 [experts, bins], of this rank since the last update or pool(), accumulated
  TensorView load;    // i64 [experts], of this rank in this step, accumulated
  double low = -1;    // range of the histogram, frozen between updates
  double high = 1;
};

// How statistics are summed over every rank that holds different tokens (data x context, for all micro-batches).
struct BalanceCollectives {
  std::function<void(TensorView)> all_reduce_sum;  // i64 [n], in place
  // All ranks' values, in the order of ranks; only for estimator exact. Empty: this rank alone.
  std::function<std::vector<double>(std::span<const double>)> all_gather;
};

struct BalanceReport {
  std::vector<LoadSummary> loads;  // [routers], of this step over all ranks
  bool updated = false;            // the biases have changed

  // The largest of all routers; 0 without routers.
  [[nodiscard]] double max_violation() const noexcept;
};

class StageBalance {
 public:
  // `dtype` is the accurate type of the model. `routers` bring their own methods; options.method is the recipe's. `device` is
  // where the routers run.
  StageBalance(const BalanceOptions& options, DType dtype, std::vector<BalancedRouter> routers, Device device = {});

  [[nodiscard]] int64_t num_routers() const noexcept { return narrow<int64_t>(routers_.size()); }
  [[nodiscard]] RouterBalance router(int64_t index) const;
  // With estimator exact: scores [tokens, experts] and cutoff [tokens] of one micro-batch, for routers with method quantile.
  void observe(int64_t index, const TensorView& scores, const TensorView& cutoff);

  // Brings what this rank has counted in the step to the host, and clears it on the GPU. Waits for the GPU.
  void collect();
  // Ends a step on all ranks together: measures its load and, every sync_every_steps, updates the biases. Collects, unless that
  // was done. On a GPU the routers get new biases by publish.
  BalanceReport end_step(const BalanceCollectives& collectives);

  // Makes the state complete for a checkpoint, on all ranks together, between steps: this rank's part of the histograms
  // moves into the pooled one, which is the same on all ranks. Later biases are not affected, bit for bit.
  void pool(const BalanceCollectives& collectives);
  // After biases were written from elsewhere (a released model): no statistics, bounds from the biases.
  void restart();
  // The routers get their biases: after state was loaded through for_each, waiting for the GPU; after end_step, in the order of
  // the context's stream.
  void publish();
  void publish(ExecContext& ctx);

  // Calls f(name, TensorView) for all state, to save it or to load into it. The names of one router are
  //   NAME.e_score_correction_bias  [experts]             NAME.balance.bounds  f64 [2]
  //   NAME.balance.counts           i64 [experts, bins]   NAME.balance.load    i64 [experts]   since the last update
  //   NAME.balance.steps_since_update  i64 [1]
  // Throws UsageError while this rank holds counts that were not pooled.
  template <class F>
  void for_each(F&& f) {
    require_pooled();
    for (Router& r : routers_) {
      f(r.spec.name + ".e_score_correction_bias", r.bias);
      f(r.spec.name + ".balance.bounds", r.bounds.view());
      f(r.spec.name + ".balance.counts", r.pooled_counts.view());
      f(r.spec.name + ".balance.load", r.pooled_load.view());
      f(r.spec.name + ".balance.steps_since_update", r.steps_since_update.view());
    }
  }

 private:
  struct Router {
    BalancedRouter spec;
    TensorView counts, load;    // into buffer_: this rank's part
    TensorView bias;            // [experts], into biases_
    TensorView device_counts, device_load, device_bias;  // what the router uses; on the CPU the same memory
    Tensor bounds;              // f64 [2]
    Tensor pooled_counts;       // i64 [experts, bins], of all ranks
    Tensor pooled_load;         // i64 [experts], of all ranks
    Tensor steps_since_update;  // i64 [1], equal in all routers of a run
    ExactStatistics exact;
  };

  [[nodiscard]] int64_t bins_of(const BalancedRouter& router) const noexcept;
  [[nodiscard]] TensorView loads() const { return buffer_.view().slice(0, 0, total_experts_); }
  [[nodiscard]] TensorView histograms() const { return buffer_.view().slice(0, total_experts_, buffer_.view().numel()); }
  // Moves this rank's counts in [begin, end) of the buffer from the device to the host, and clears them there.
  void fetch(int64_t begin, int64_t end);
  [[nodiscard]] bool is_update_due() const;
  void require_pooled() const;
  void absorb_histograms();
  void update(Router& router, const BalanceCollectives& collectives);
  void update_quantile(Router& router, const BalanceCollectives& collectives, std::span<double> bias);
  [[nodiscard]] static std::vector<double> quantiles_of_histograms(const Router& router, int64_t tokens);
  static void clear_statistics(Router& router);

  BalanceOptions options_;
  Device device_;
  int64_t total_experts_ = 0;
  bool is_collected_ = false;  // the counts of a step that has not ended are on the host
  Tensor buffer_;  // i64 [total experts + sum of experts * bins]: [load of every router | counts of every router]
  Tensor biases_;  // [total experts]
  Tensor device_buffer_, device_biases_;  // the same on a GPU; absent on the CPU
  std::vector<Router> routers_;
};

}  // namespace longhaul
