// How the work of a stage is cut over the ranks: the recipe's `parallel` section. See parallel_grid.h for the layout.
#pragma once

#include <cstdint>
#include <vector>

namespace longhaul {

struct ParallelOptions {
  int64_t pipeline = 1;
  std::vector<int64_t> pipeline_cuts;
  int64_t virtual_pipeline = 1;
  int64_t data = 1;
  int64_t context = 1;
  int64_t expert = 1;
  int64_t micro_batch_tokens = 0;

  friend bool operator==(const ParallelOptions&, const ParallelOptions&) = default;
};

template <class Visitor>
void describe(Visitor& v, ParallelOptions& o) {
  v.field("pipeline", o.pipeline, "pipeline stages; cuts fall on Attention-Residual block boundaries").positive();
  v.field("pipeline_cuts", o.pipeline_cuts, "0-based layers in front of which the pipeline is cut; chosen for balance when empty");
  v.field("virtual_pipeline", o.virtual_pipeline, "pieces of the model that each pipeline rank holds in turn").positive();
  v.field("data", o.data, "replicas that read different sequences").positive();
  v.field("context", o.context, "ranks that share one sequence").positive();
  v.field("expert", o.expert, "ranks that share one set of experts; divides data x context").positive();
  v.field("micro_batch_tokens", o.micro_batch_tokens,
          "tokens of one micro-batch of a data replica, over its context ranks; at least one sequence, which 0 stands for")
      .non_negative();
}

}  // namespace longhaul
