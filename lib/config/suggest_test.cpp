// Suggestions: typing mistakes, wrong sections, names of other trainers.
#include "config/suggest.h"

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "config/test_options.h"

using namespace longhaul;
using namespace longhaul::config;
using namespace longhaul::config_test;

TEST_CASE("edit distance counts insertions, deletions, substitutions and swaps", "[config]") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("pipline", "pipeline") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("wieght", "weight") == 1);
  CHECK(edit_distance("abc", "abc") == 0);
}

TEST_CASE("the nearest word, or none", "[config]") {
  const std::vector<std::string_view> words = {"cosine", "constant", "linear"};
  CHECK(nearest_word("cosin", words) == "cosine");
  CHECK(nearest_word("const", words) == "constant");
  CHECK(nearest_word("zzz", words).empty());
  CHECK(nearest_word(std::string(100'000, 'c'), words).empty());
}

TEST_CASE("keys are looked for in the section, the tree and other trainers' names", "[config]") {
  const Schema schema = schema_of<TestRecipe>();
  const auto hint = [&](std::string_view section, std::string_view name) { return suggest_key(schema, section, name); };
  CHECK(hint("", "learning_rate") == "did you mean optimizer.learning_rate?");
  CHECK(hint("", "optimiser") == "did you mean optimizer?");
  CHECK(hint("parallel", "pipline") == "did you mean parallel.pipeline?");
  CHECK(hint("stages.1.parallel", "pipline") == "did you mean stages.1.parallel.pipeline?");
  CHECK(hint("", "pipline") == "did you mean parallel.pipeline?");
  CHECK(hint("run", "weight") == "did you mean data.train.N.weight?");
  CHECK(hint("data.train.3", "name") == "did you mean run.name or optimizer.name or stages.N.name?");
  CHECK(hint("", "lr") == "did you mean optimizer.learning_rate?");
  CHECK(hint("optimizer", "lr") == "did you mean optimizer.learning_rate?");
  CHECK(hint("", "seq_length") == "did you mean stages.N.sequence_length?");
  CHECK(hint("training", "seq_len") == "did you mean stages.N.sequence_length?");
  CHECK(hint("stages.2", "train_iters") == "did you mean stages.2.steps?");
  CHECK(hint("", "max_steps") == "did you mean stages.N.steps?");
  CHECK(hint("", "micro_batch_size") == "did you mean parallel.micro_batch_tokens (counted in tokens)?");
  CHECK(hint("parallelism", "pipeline_parallel_degree") == "did you mean parallel.pipeline?");
  CHECK(hint("", "tensor_model_parallel_size") == "there is no tensor parallelism: use pipeline, context and expert");
  CHECK(hint("optimizer", "max_grad_norm") == "did you mean optimizer.clip_norm?");
  CHECK(hint("optimizer", "warmup") == "did you mean optimizer.warmup_steps?");
  CHECK(hint("", "resume_from_checkpoint").find("--resume") != std::string::npos);
  // An alias of a key that this recipe does not have is no hint.
  CHECK(hint("", "moe_router_topk") == "known keys of the recipe: run, parallel, optimizer, data, stages");
  CHECK(hint("run.publish", "qqq") == "known keys of run.publish: target, compress");
}

TEST_CASE("an alias never shadows itself and is listed once", "[config]") {
  std::set<std::string_view> names;
  for (const Alias& alias : known_aliases()) {
    INFO(alias.name);
    CHECK(names.insert(alias.name).second);
    CHECK_FALSE((alias.key.empty() && alias.note.empty()));
    const auto dot = alias.key.rfind('.');
    CHECK(alias.key.substr(dot == std::string_view::npos ? 0 : dot + 1) != alias.name);
  }
}
