// See plan.h.
#include "train/plan.h"

#include <algorithm>

#include "base/cast.h"
#include "comm/loopback_device_comm.h"
#include "comm/self_host_comm.h"
#include "model/flops.h"
#include "model/stage_model.h"
#include "parallel/pipeline.h"
#include "parallel/schedule.h"

namespace longhaul {
namespace {

// Reports through `diagnostics` with the position of the key in the stage, or of the recipe's section underneath.
class StageReport {
 public:
  StageReport(config::Diagnostics& diagnostics, const config::SourceMap& positions, size_t stage)
      : diagnostics_(diagnostics), positions_(positions), prefix_(fmt::format("stages.{}.", stage)) {}

  void operator()(const std::string& key, std::string message) {
    const std::string own = prefix_ + key;
    diagnostics_.add(positions_.contains(own) ? own : key, std::move(message));
  }

 private:
  config::Diagnostics& diagnostics_;
  const config::SourceMap& positions_;
  std::string prefix_;
};

void plan_batches(const StageOptions& options, const ParallelOptions& parallel, StagePlan& plan, StageReport& report) {
  plan.sequences_per_step = options.global_batch_tokens / options.sequence_length;
  plan.sequences_per_micro_batch = std::max<int64_t>(1, parallel.micro_batch_tokens / options.sequence_length);
  if (parallel.micro_batch_tokens > options.sequence_length && parallel.micro_batch_tokens % options.sequence_length != 0) {
    report("parallel.micro_batch_tokens", fmt::format("must be a multiple of sequence_length = {} or smaller than it, got {}",
                                                      options.sequence_length, parallel.micro_batch_tokens));
  }
  const int64_t together = plan.sequences_per_micro_batch * parallel.data;
  if (plan.sequences_per_step % together != 0) {
    report("global_batch_tokens",
           fmt::format("{} tokens are {} sequences of {}, which do not divide into micro-batches of {} on {} data ranks; use a multiple of {}",
                       options.global_batch_tokens, plan.sequences_per_step, options.sequence_length, plan.sequences_per_micro_batch,
                       parallel.data, together * options.sequence_length));
  }
  plan.micro_batches = plan.sequences_per_step / together;
}

// Layout and cut. What rests on a key that is wrong itself is left out.
void plan_layout(const Recipe& recipe, const ParallelOptions& parallel, std::optional<int64_t> world_size, const config::Diagnostics& diagnostics,
                 StagePlan& plan, StageReport& report) {
  const bool model_is_right = !diagnostics.has("model");
  const auto attempt = [&](const std::string& key, auto&& compute) {
    try {
      compute();
    } catch (const RecipeError& error) {
      const std::string_view text = error.what();
      const std::string own = key + ": ";  // the report names the key itself
      report(key, std::string(text.starts_with(own) ? text.substr(own.size()) : text));
    }
  };
  if (world_size) {
    attempt("parallel", [&] { plan.grid = ParallelGrid::create(parallel, narrow<int>(*world_size)); });
  }
  if (model_is_right) {
    attempt("parallel.pipeline", [&] {
      plan.cut = parallel.pipeline_cuts.empty() ? cut_stages(recipe.model, parallel.pipeline) : cut_stages_at(recipe.model, parallel.pipeline_cuts);
      if (std::ssize(plan.cut) != parallel.pipeline) {
        throw RecipeError("pipeline_cuts names {} cuts, which make {} stages, but pipeline is {}", parallel.pipeline_cuts.size(), plan.cut.size(),
                          parallel.pipeline);
      }
    });
  }
  if (parallel.virtual_pipeline != 1) {
    report("parallel.virtual_pipeline", "interleaved stages are not available in this version; use 1");
  }
  if (parallel.context != 1) {
    report("parallel.context", "context parallelism is not available in this version; use 1");
  }
  if (model_is_right && recipe.model.num_experts % parallel.expert != 0) {
    report("parallel.expert", fmt::format("must divide num_experts = {}, got {}", recipe.model.num_experts, parallel.expert));
  }
}

// The ranks to plan for. A section whose name is misspelt may have been the layout, of which the defaults then say nothing.
std::optional<int64_t> planned_world(const Recipe& recipe, std::optional<int64_t> world_size, const config::Diagnostics& diagnostics) {
  const bool has_stray_section = std::ranges::any_of(diagnostics.problems(), [](const config::Problem& p) { return p.key.find('.') == std::string::npos; });
  if (has_stray_section || recipe.stages.empty() || diagnostics.has("parallel") || diagnostics.has("stages.0")) {
    return std::nullopt;
  }
  const ParallelOptions first = recipe.stages.front().parallel.apply(recipe.parallel);
  return world_size.value_or(first.pipeline * first.data * first.context);
}

std::string human_bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= int64_t{1} << 30) {
    return fmt::format("{:.2f} GiB", value / (1 << 30));
  }
  if (bytes >= int64_t{1} << 20) {
    return fmt::format("{:.1f} MiB", value / (1 << 20));
  }
  return fmt::format("{:.1f} KiB", value / (1 << 10));
}

std::string layers_of(const StageRange& range) {
  return fmt::format("{}layers {}-{}{}", range.has_embedding ? "embedding + " : "", range.first_layer, range.last_layer - 1,
                     range.has_head ? " + head" : "");
}

void append_stage(const Recipe& recipe, const StagePlan& stage, std::string& text) {
  text += fmt::format("stage {}: {} steps ({}-{}), sequences of {}, {} tokens a step\n", stage.name, stage.steps, stage.first_step + 1,
                      stage.last_step(), stage.sequence_length, stage.tokens_per_step());
  text += fmt::format("  {}\n  {} micro-batches of {} tokens a data rank\n", stage.grid.describe(), stage.micro_batches, stage.micro_batch_tokens());
  text += fmt::format("  {:<28}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "memory of a rank", "weights", "gradients", "optimizer", "activations",
                      "scratch", "total");
  for (int p = 0; p < stage.grid.pipeline(); ++p) {
    const RankMemory memory = plan_memory(recipe, stage, p);
    text += fmt::format("  {:<28}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}\n",
                        fmt::format("{}: {}", p, layers_of(stage.cut[static_cast<size_t>(p)])), human_bytes(memory.parameters),
                        human_bytes(memory.gradients), human_bytes(memory.optimizer), human_bytes(memory.activations),
                        human_bytes(memory.scratch), human_bytes(memory.total()));
  }
  for (size_t p = 1; p < stage.cut.size(); ++p) {
    const int64_t sources = sources_before(recipe.model, stage.cut[p].first_layer);
    const int64_t bytes = sources * stage.micro_batch_tokens() * recipe.model.hidden_size * size_of(compute_type(recipe));
    text += fmt::format("  cut in front of layer {}: {} tensors [tokens, hidden], {} a micro-batch\n", stage.cut[p].first_layer, sources,
                        human_bytes(bytes));
  }
}

}  // namespace

DType compute_type(const Recipe& recipe) {
  if (recipe.precision.compute == ComputePrecision::FP64) {
    return DType::F64;
  }
  return recipe.runtime.backend == Backend::Cuda && recipe.precision.compute == ComputePrecision::BF16 ? DType::BF16 : DType::F32;
}

int64_t planned_documents(int64_t tokens) { return tokens / 64 + 1; }

const StagePlan& RunPlan::stage_of_step(int64_t step) const {
  for (const StagePlan& stage : stages) {
    if (step <= stage.last_step()) {
      return stage;
    }
  }
  return stages.back();
}

RunPlan make_plan(const Recipe& recipe, int world_size) {
  config::Diagnostics diagnostics;
  diagnostics.attach(recipe.positions);
  RunPlan plan = make_plan(recipe, world_size, diagnostics);
  diagnostics.throw_if_any();
  return plan;
}

RunPlan make_plan(const Recipe& recipe, std::optional<int64_t> world_size, config::Diagnostics& diagnostics) {
  RunPlan run;
  world_size = planned_world(recipe, world_size, diagnostics);
  const bool layout_is_wrong = diagnostics.has("parallel");
  for (size_t i = 0; i < recipe.stages.size(); ++i) {
    const StageOptions& options = recipe.stages[i];
    if (diagnostics.has(fmt::format("stages.{}", i)) || layout_is_wrong) {
      continue;
    }
    const ParallelOptions parallel = options.parallel.apply(recipe.parallel);
    StagePlan plan{.name = options.name,
                   .index = narrow<int64_t>(i),
                   .grid = ParallelGrid::create({}, 1),
                   .cut = {},
                   .data = options.data.apply(recipe.data),
                   .optimizer = options.optimizer.apply(recipe.optimizer),
                   .balance = options.balance.apply(recipe.balance),
                   .sequence_length = options.sequence_length};
    StageReport report(diagnostics, recipe.positions, i);
    plan_layout(recipe, parallel, world_size, diagnostics, plan, report);
    plan_batches(options, parallel, plan, report);
    plan.steps = options.steps ? *options.steps : ceil_div(*options.tokens, options.global_batch_tokens);
    plan.first_step = run.total_steps;
    run.total_steps += plan.steps;
    run.total_tokens += plan.steps * plan.tokens_per_step();
    run.stages.push_back(std::move(plan));
  }
  return run;
}

RankMemory plan_memory(const Recipe& recipe, const StagePlan& stage, int pipeline) {
  // One rank stands for a group of any size: planning asks for shapes and communicates nothing.
  SelfHostComm host;
  LoopbackDeviceComm alone;
  const Group experts{"expert", 0, stage.grid.expert(), host, alone};
  const Device planned{.kind = recipe.runtime.backend == Backend::Cuda ? DeviceKind::Cuda : DeviceKind::Cpu, .index = 0};
  const DType dtype = compute_type(recipe);
  const StageModel model(recipe.model, stage.cut[static_cast<size_t>(pipeline)], dtype, experts);
  RankMemory memory;
  StageModel::Weights<ParameterSpec> specs = model.weights();
  int64_t elements = 0;
  model.for_each(specs, [&](const std::string&, ParameterSpec& spec) { elements += spec.shape.numel(); });
  const int64_t exact = size_of(accurate_type(dtype));
  memory.parameters = elements * exact + (dtype == DType::BF16 ? elements * size_of(dtype) : 0);
  memory.gradients = elements * size_of(gradient_type(dtype, planned));
  memory.optimizer = 2 * elements * exact;
  for (const DecoderLayer& layer : model.layers()) {
    if (!layer.is_dense) {
      memory.balance += layer.moe.options.num_experts * (stage.balance.bins + 2) * size_of(DType::I64);
    }
  }
  const StageMemory step = plan_stage_memory(model, planned, stage.micro_batch_tokens(), planned_documents(stage.micro_batch_tokens()));
  memory.in_flight = max_in_flight(one_forward_one_backward(pipeline, stage.grid.pipeline(), stage.micro_batches));
  memory.activations = step.keep_bytes * memory.in_flight;
  memory.scratch = step.scratch_bytes;
  return memory;
}

std::string plan_table(const Recipe& recipe, const RunPlan& plan) {
  const double documents = static_cast<double>(plan.stages.back().sequence_length);
  std::string text = fmt::format("run {} in {}: {} parameters ({} active without the embedding), {:.3g} GFLOP a token at {} tokens\n",
                                 recipe.run.name, recipe.run.directory(), total_parameters(recipe.model), active_parameters(recipe.model),
                                 training_flops_per_token(recipe.model, documents) * 1e-9, plan.stages.back().sequence_length);
  text += "operations a token = 3 x (2 x active parameters + KDA, linear in context + MLA, causal)\n";
  for (const StagePlan& stage : plan.stages) {
    append_stage(recipe, stage, text);
  }
  return text + fmt::format("total: {} steps, {} tokens\n", plan.total_steps, plan.total_tokens);
}

}  // namespace longhaul
