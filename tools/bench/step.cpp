// See step.h.
#include "tools/bench/step.h"

#include <algorithm>
#include <array>

#include "base/philox.h"
#include "comm/self_host_comm.h"
#include "data/token_writer.h"
#include "model/flops.h"
#include "storage/temporary_directory.h"
#include "train/plan.h"
#include "train/step.h"

namespace longhaul::bench {
namespace {

// Names of ProfileScopes. Those of layers do not lie within each other; all that a step does is in one of them or "other".
constexpr std::array<const char*, 7> kLayers = {"KDA layer", "MLA layer", "MoE layer", "MLP layer", "residual mix", "head", "optimizer"};
constexpr std::array<const char*, 7> kOperations = {"row products", "weight gradients", "KDA", "attention", "residual mix", "head", "optimizer"};

// The chosen stage alone, on one rank of the CPU, with data under `folder`.
Recipe single_rank_recipe(const StepOptions& options, const std::filesystem::path& folder) {
  std::vector<std::string> overrides = options.overrides;
  overrides.insert(overrides.end(), {"runtime.backend=cpu", "runtime.communicator=auto"});
  Recipe recipe = load_recipe(options.recipe, overrides);
  const auto chosen = std::find_if(recipe.stages.begin(), recipe.stages.end(),
                                   [&](const StageOptions& stage) { return options.stage.empty() || stage.name == options.stage; });
  if (chosen == recipe.stages.end()) {
    throw RecipeError("{} has no stage \"{}\"", options.recipe, options.stage);
  }
  StageOptions stage = *chosen;
  ParallelOptions parallel = stage.parallel.apply(recipe.parallel);
  parallel.pipeline = parallel.virtual_pipeline = parallel.data = parallel.context = parallel.expert = 1;
  parallel.pipeline_cuts.clear();
  recipe.parallel = parallel;
  stage.parallel = {};
  recipe.data = {.train = {{.path = (folder / "random").string()}}, .validation = {}};
  stage.data = {};
  stage.tokens.reset();
  stage.steps = 1'000'000;  // no end in sight: the learning rate does not matter here
  recipe.stages = {stage};
  return recipe;
}

void write_random_tokens(const Recipe& recipe) {
  const StageOptions& stage = recipe.stages.front();
  TokenFileWriter writer(recipe.data.train.front().path, recipe.model.vocab_size);
  const RandomStream stream{.seed = 1, .stream = stream_id("bench/tokens")};
  const auto vocabulary = static_cast<uint64_t>(recipe.model.vocab_size);
  std::vector<int32_t> document(static_cast<size_t>(stage.sequence_length));
  uint64_t index = 0;
  for (int64_t tokens = 0; tokens < 2 * stage.global_batch_tokens; tokens += stage.sequence_length) {
    for (int32_t& token : document) {
      token = static_cast<int32_t>(stream.below(index++, vocabulary));
    }
    writer.add_document(document);
  }
  writer.finish();
}

template <size_t N, class Seconds>
std::vector<StepShare> shares(const Profile& profile, const std::array<const char*, N>& names, double seconds, int64_t repeats, Seconds&& seconds_of) {
  std::vector<StepShare> out;
  double rest = seconds;
  for (const char* name : names) {
    const Profile::Entry entry = profile.find(name);
    const double spent = seconds_of(entry);
    rest -= spent;
    if (entry.calls > 0) {
      out.push_back({.name = name, .calls = entry.calls / repeats, .seconds = spent / static_cast<double>(repeats)});
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const StepShare& a, const StepShare& b) { return a.seconds > b.seconds; });
  out.push_back({.name = "other", .calls = 0, .seconds = rest / static_cast<double>(repeats)});
  return out;
}

}  // namespace

std::vector<StepShare> shares_by_layer(const Profile& profile, double seconds, int64_t repeats) {
  return shares(profile, kLayers, seconds, repeats, [](const Profile::Entry& entry) { return entry.seconds; });
}

std::vector<StepShare> shares_by_operation(const Profile& profile, double seconds, int64_t repeats) {
  return shares(profile, kOperations, seconds, repeats, [](const Profile::Entry& entry) { return entry.own_seconds; });
}

StepMeasurement measure_step(const StepOptions& options) {
  const TemporaryDirectory folder;
  const Recipe recipe = single_rank_recipe(options, folder.path());
  write_random_tokens(recipe);
  const RunPlan plan = make_plan(recipe, 1);
  const StagePlan& stage = plan.stages.front();
  SelfHostComm world;
  CommJournal journal;
  Watchdog watchdog({.limit = std::chrono::seconds(0), .host_name = "bench"}, journal, {.report = {}, .end_job = {}});
  StageState state(recipe, stage, world, &journal, Device{});
  state.initialise(1);

  int64_t step = 0;
  const auto one_step = [&] { (void)train_step(state, world, watchdog, ++step, plan.total_steps); };
  StepMeasurement result{.stage = stage.name,
                         .dtype = state.model.dtype(),
                         .parameters = total_parameters(recipe.model),
                         .sequence_length = stage.sequence_length,
                         .tokens = stage.tokens_per_step(),
                         .flops = training_flops_per_token(recipe.model, static_cast<double>(stage.sequence_length)) *
                                  static_cast<double>(stage.tokens_per_step())};
  result.timing = measure(one_step, options.seconds);

  Profile profile;
  const int64_t repeats = std::clamp<int64_t>(result.timing.repeats, 1, 10);
  const double start = thread_seconds();
  {
    const ProfileRecording recording(profile);
    for (int64_t i = 0; i < repeats; ++i) {
      one_step();
    }
  }
  const double seconds = thread_seconds() - start;
  result.layers = shares_by_layer(profile, seconds, repeats);
  result.operations = shares_by_operation(profile, seconds, repeats);
  return result;
}

}  // namespace longhaul::bench
