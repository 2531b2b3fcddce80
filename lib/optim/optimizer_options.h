// The recipe's `optimizer` section.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace longhaul {

enum class OptimizerName : uint8_t { AdamW };
constexpr auto enum_names(OptimizerName) {
  return std::array<std::pair<OptimizerName, std::string_view>, 1>{{{OptimizerName::AdamW, "adamw"}}};
}

enum class ScheduleKind : uint8_t { Constant, Cosine, Wsd };
constexpr auto enum_names(ScheduleKind) {
  return std::array<std::pair<ScheduleKind, std::string_view>, 3>{
      {{ScheduleKind::Constant, "constant"}, {ScheduleKind::Cosine, "cosine"}, {ScheduleKind::Wsd, "wsd"}}};
}

struct OptimizerOptions {
  OptimizerName name = OptimizerName::AdamW;
  double learning_rate = 3e-4;  // the peak
  ScheduleKind schedule = ScheduleKind::Cosine;
  int64_t warmup_steps = 0;
  double min_learning_rate_ratio = 0.1;  // of the peak, reached at the run's last step
  double decay_fraction = 0.2;           // wsd: share of the run in which the rate falls
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;  // 0: no clipping

  friend bool operator==(const OptimizerOptions&, const OptimizerOptions&) = default;
};

template <class V>
void describe(V& v, OptimizerOptions& o) {
  v.field("name", o.name, "the optimizer");
  v.field("learning_rate", o.learning_rate, "peak learning rate").positive();
  v.field("schedule", o.schedule, "how the rate falls after the warm-up, over all stages of the run");
  v.field("warmup_steps", o.warmup_steps, "steps of linear warm-up from 0").non_negative();
  v.field("min_learning_rate_ratio", o.min_learning_rate_ratio, "rate at the run's last step, relative to the peak").range(0.0, 1.0);
  v.field("decay_fraction", o.decay_fraction, "wsd: last share of the run, in which the rate falls linearly").range(0.0, 1.0);
  v.field("beta1", o.beta1, "decay of the first moment").range(0.0, 0.999999);
  v.field("beta2", o.beta2, "decay of the second moment").range(0.0, 0.999999);
  v.field("eps", o.eps, "added to the root of the second moment").positive();
  v.field("weight_decay", o.weight_decay, "decoupled weight decay of matrices").non_negative();
  v.field("clip_norm", o.clip_norm, "largest global gradient norm; 0: not clipped").non_negative();
}

}  // namespace longhaul
