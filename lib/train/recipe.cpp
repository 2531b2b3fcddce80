// See recipe.h.
#include "train/recipe.h"

#include "config/read.h"
#include "model/config_json.h"

namespace longhaul {
namespace {

constexpr std::string_view kExactIsForValidation = "exact quantiles are for validation outside training; use histogram";

// model.config gives the base that the section's own keys change.
void read_model_base(const config::Document& document, const std::filesystem::path& folder, Recipe& recipe, config::Diagnostics& diagnostics) {
  const config::Node* node = document.find("model.config");
  if (node == nullptr || node->kind != config::Node::Kind::Scalar) {
    return;
  }
  std::filesystem::path path = node->text;
  if (path.is_relative() && !std::filesystem::exists(path)) {
    path = folder / path;
  }
  try {
    static_cast<ModelOptions&>(recipe.model) = model_options_from_config_file(path);
  } catch (const Error& error) {
    diagnostics.add("model.config", std::string(error.what()));
  }
}

void check_stage(const StageOptions& stage, size_t index, config::Diagnostics& diagnostics) {
  const std::string key = fmt::format("stages.{}", index);
  if (stage.steps.has_value() == stage.tokens.has_value()) {
    diagnostics.add(key, std::string(stage.steps ? "give steps or tokens, not both" : "give steps or tokens"));
  }
  if (stage.sequence_length > 0 && stage.global_batch_tokens % stage.sequence_length != 0) {
    diagnostics.add(key + ".global_batch_tokens", fmt::format("must be a multiple of sequence_length = {}, got {}", stage.sequence_length,
                                                              stage.global_batch_tokens));
  }
}

void check_stages(const Recipe& recipe, config::Diagnostics& diagnostics) {
  if (recipe.stages.empty()) {
    diagnostics.add("stages", std::string("at least one stage is needed"));
  }
  for (size_t i = 0; i < recipe.stages.size(); ++i) {
    const std::string key = fmt::format("stages.{}", i);
    if (diagnostics.has(key)) {
      continue;
    }
    check_stage(recipe.stages[i], i, diagnostics);
    for (size_t j = 0; j < i; ++j) {
      if (recipe.stages[i].name == recipe.stages[j].name) {
        diagnostics.add(key + ".name", fmt::format("stage {} has the same name \"{}\"", j, recipe.stages[j].name));
      }
    }
    if (!diagnostics.has("data") && recipe.stages[i].data.apply(recipe.data).train.empty()) {
      diagnostics.add("data.train", std::string("at least one source of training data is needed"));
    }
    const BalanceOptions balance = recipe.stages[i].balance.apply(recipe.balance);
    if (recipe.balance.estimator != QuantileEstimator::Exact && balance.estimator == QuantileEstimator::Exact) {
      diagnostics.add(key + ".balance.estimator", std::string(kExactIsForValidation));
    }
  }
}

void check_balance(const Recipe& recipe, config::Diagnostics& diagnostics) {
  check(recipe.balance, [&](std::string_view key, const std::string& message) { diagnostics.add("balance." + std::string(key), message); });
  if (recipe.balance.estimator == QuantileEstimator::Exact) {
    diagnostics.add("balance.estimator", std::string(kExactIsForValidation));
  }
}

void check_runtime(const Recipe& recipe, config::Diagnostics& diagnostics) {
  if (recipe.precision.compute == ComputePrecision::FP64 && recipe.runtime.backend == Backend::Cuda) {
    diagnostics.add("precision.compute", std::string("fp64 is for checking on the CPU; use bf16 or fp32 with the cuda backend"));
  }
  if ((recipe.precision.compute == ComputePrecision::FP64) != (recipe.precision.master == MasterPrecision::FP64)) {
    diagnostics.add("precision.master", std::string("must be fp64 exactly when compute is fp64"));
  }
  if (recipe.runtime.backend == Backend::Cpu && recipe.runtime.communicator != Communicator::Auto && recipe.runtime.communicator != Communicator::Mpi) {
    diagnostics.add("runtime.communicator", std::string("the cpu backend communicates through mpi; use auto or mpi"));
  }
  if (recipe.runtime.backend == Backend::Cuda && recipe.runtime.communicator == Communicator::Mpi) {
    diagnostics.add("runtime.communicator", std::string("the cuda backend communicates through nccl or staged; use auto, nccl or staged"));
  }
}

// Rules across the keys of a section, and of several. Where a key of them is wrong itself they would only repeat it.
void check_recipe(const Recipe& recipe, config::Diagnostics& diagnostics) {
  if (!diagnostics.has("model")) {
    check(recipe.model, [&](std::string_view key, const std::string& message) { diagnostics.add("model." + std::string(key), message); });
  }
  if (!diagnostics.has("balance")) {
    check_balance(recipe, diagnostics);
  }
  if (!diagnostics.has("stages") || !recipe.stages.empty()) {
    check_stages(recipe, diagnostics);
  }
  if (!diagnostics.has("precision") && !diagnostics.has("runtime")) {
    check_runtime(recipe, diagnostics);
  }
}

}  // namespace

Recipe load_recipe(const config::Document& document, const std::filesystem::path& folder, config::Diagnostics& diagnostics) {
  Recipe recipe;
  diagnostics.attach(document.source_map());
  read_model_base(document, folder, recipe, diagnostics);
  config::read(document, recipe, diagnostics);
  // Its values are in the section now: a resolved recipe must load where the file is not.
  recipe.model.config.reset();
  diagnostics.attach(document.source_map());
  recipe.positions = document.source_map();
  check_recipe(recipe, diagnostics);
  return recipe;
}

Recipe load_recipe(const config::Document& document, const std::filesystem::path& folder) {
  config::Diagnostics diagnostics;
  Recipe recipe = load_recipe(document, folder, diagnostics);
  diagnostics.throw_if_any();
  return recipe;
}

Recipe load_recipe(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  return load_recipe(config::Document::from_file(path, overrides), path.parent_path());
}

}  // namespace longhaul
