// Dump, read again, diff, hash, documentation table, overlays.
#include "config/write.h"

#include <yaml-cpp/yaml.h>

#include <catch2/catch_test_macros.hpp>

#include "config/read.h"
#include "config/test_options.h"

using namespace longhaul;
using namespace longhaul::config;
using namespace longhaul::config_test;

namespace {

TestRecipe read_text(std::string_view text) {
  const auto doc = Document::from_string(text);
  TestRecipe recipe;
  Diagnostics diagnostics;
  read(doc, recipe, diagnostics);
  CHECK(diagnostics.text() == "");
  return recipe;
}

constexpr const char* kRecipe =
    "stages:\n"
    "- {name: 8k, steps: 10}\n"
    "- name: \"two: # words\"\n"
    "  parallel: {data: 2}\n"
    "  optimizer: {learning_rate: 1e-5, muon: {iterations: 9}}\n"
    "  data: {train: [{path: c}]}\n"
    "optimizer: {clip_norm: null, betas: [0.1, 0.2]}\n"
    "data: {train: [{path: a/b, weight: 0.3}, {path: \"é\\n\"}]}\n"
    "run: {signals: [USR1], layers: [1, 2, 3]}\n";

}  // namespace

TEST_CASE("the dump has every key in a fixed order and layout", "[config]") {
  CHECK(dump(read_text(kRecipe)) ==
        "run:\n"
        "  name: run\n"
        "  dir: runs/run\n"
        "  seed: 1234\n"
        "  deterministic: false\n"
        "  precision: bf16\n"
        "  signals: [USR1]\n"
        "  layers: [1, 2, 3]\n"
        "  publish: null\n"
        "parallel:\n"
        "  pipeline: 1\n"
        "  data: 1\n"
        "  micro_batch_tokens: 8192\n"
        "optimizer:\n"
        "  name: muon\n"
        "  learning_rate: 3.0e-4\n"
        "  epsilon: 1.0e-8\n"
        "  warmup_steps: 0\n"
        "  clip_norm: null\n"
        "  betas: [0.1, 0.2]\n"
        "  muon:\n"
        "    momentum: 0.95\n"
        "    iterations: 5\n"
        "data:\n"
        "  train:\n"
        "    - path: a/b\n"
        "      weight: 0.3\n"
        "    - path: \"é\\n\"\n"
        "      weight: 1.0\n"
        "stages:\n"
        "  - name: \"8k\"\n"
        "    sequence_length: 4096\n"
        "    steps: 10\n"
        "  - name: \"two: # words\"\n"
        "    sequence_length: 4096\n"
        "    steps: null\n"
        "    parallel:\n"
        "      data: 2\n"
        "    optimizer:\n"
        "      learning_rate: 1.0e-5\n"
        "      muon:\n"
        "        iterations: 9\n"
        "    data:\n"
        "      train:\n"
        "        - path: c\n"
        "          weight: 1.0\n");
}

TEST_CASE("a dump reads back to the same struct", "[config]") {
  TestRecipe recipe = read_text(kRecipe);
  recipe.optimizer.learning_rate = 0.1 + 0.2;
  recipe.optimizer.epsilon = 1.0F / 3.0F;
  recipe.run.name = "quote \" back \\ tab \t end \x01 \u4f60";
  recipe.run.publish = ExportOptions{.target = "null"};
  recipe.run.layers.clear();
  const std::string text = dump(recipe);
  const TestRecipe again = read_text(text);
  CHECK(dump(again) == text);
  CHECK(again.optimizer == recipe.optimizer);
  CHECK(again.run.name == recipe.run.name);
  CHECK(again.run.publish == recipe.run.publish);
  CHECK(again.data == recipe.data);
  CHECK(again.stages[1].optimizer.given == recipe.stages[1].optimizer.given);
  CHECK(diff(recipe, again).empty());
  CHECK(hash(recipe) == hash(again));
  // An independent YAML reader sees the same values.
  const YAML::Node other = YAML::Load(text);
  CHECK(other["optimizer"]["learning_rate"].as<double>() == 0.1 + 0.2);
  CHECK(other["run"]["name"].as<std::string>() == recipe.run.name);
  CHECK(other["stages"][1]["name"].as<std::string>() == "two: # words");
}

TEST_CASE("diff lists the keys whose values differ", "[config]") {
  const TestRecipe left = read_text(kRecipe);
  TestRecipe right = left;
  CHECK(diff(left, right).empty());
  right.run.seed = 5;
  right.optimizer.betas[1] = 0.5;
  right.optimizer.clip_norm = 2.0;
  right.run.publish = ExportOptions{.target = "x"};
  right.data.train.pop_back();
  right.stages[0].steps.reset();
  right.stages[1].parallel = {};
  right.stages[0].optimizer.given = {"epsilon"};
  std::string text;
  for (const Difference& difference : diff(left, right)) {
    text += fmt::format("{}: {} -> {}\n", difference.key, difference.left, difference.right);
  }
  CHECK(text ==
        "run.seed: 1234 -> 5\n"
        "run.publish: null -> {target: x, compress: true}\n"
        "optimizer.clip_norm: null -> 2.0\n"
        "optimizer.betas: [0.1, 0.2] -> [0.1, 0.5]\n"
        "data.train.1: {path: \"é\\n\", weight: 1.0} -> \n"
        "stages.0.steps: 10 -> null\n"
        "stages.0.optimizer:  -> {epsilon: 1.0e-8}\n"
        "stages.1.parallel: {data: 2} -> \n");
}

TEST_CASE("the hash is a fixed function of the dump", "[config]") {
  // Reference values of FNV-1a, 64 bits (draft-eastlake-fnv).
  CHECK(hash_text("") == 0xcbf29ce484222325ULL);
  CHECK(hash_text("a") == 0xaf63dc4c8601ec8cULL);
  CHECK(hash_text("foobar") == 0x85944171f73967e8ULL);
  const TestRecipe recipe = read_text(kRecipe);
  CHECK(hash(recipe) == hash_text(dump(recipe)));
  TestRecipe other = recipe;
  other.run.seed += 1;
  CHECK(hash(recipe) != hash(other));
  // How a value was written does not matter.
  CHECK(hash(read_text("run: {seed: 1e3}\n")) == hash(read_text("run:\n  seed: 1_000 # note\n")));
}

TEST_CASE("an overlay changes only the keys that were written", "[config]") {
  const TestRecipe recipe = read_text(kRecipe);
  const auto& overlay = recipe.stages[1].optimizer;
  CHECK(overlay.given == GivenKeys{"learning_rate", "muon.iterations"});
  const OptimizerOptions base{.name = OptimizerKind::AdamW, .learning_rate = 0.5, .clip_norm = 7.0, .muon = {.momentum = 0.3}};
  OptimizerOptions expected = base;
  expected.learning_rate = 1e-5;
  expected.muon.iterations = 9;
  CHECK(overlay.apply(base) == expected);
  CHECK(recipe.stages[0].optimizer.empty());
  CHECK(recipe.stages[0].optimizer.apply(base) == base);
  // A list is replaced as a whole.
  CHECK(recipe.stages[1].data.apply(recipe.data).train == std::vector<SourceOptions>{{.path = "c"}});
  CHECK(recipe.stages[1].data.given == GivenKeys{"train"});
}

TEST_CASE("an overlay is checked like its section, but may leave required keys out", "[config]") {
  const auto doc = Document::from_string(
      "stages:\n"
      "  - name: a\n"
      "    optimizer: {learning_rate: 0, muon: {}}\n"
      "    parallel: {pipline: 1}\n"
      "    data: {train: [{weight: 1}]}\n"
      "  - {name: b, optimizer: 5}\n");
  TestRecipe recipe;
  Diagnostics diagnostics;
  read(doc, recipe, diagnostics);
  CHECK(diagnostics.text() ==
        "recipe.yaml:3:17: stages.0.optimizer.learning_rate: must be > 0, got 0\n"
        "recipe.yaml:4:16: stages.0.parallel.pipline: unknown key; did you mean stages.0.parallel.pipeline?\n"
        "recipe.yaml:5:20: stages.0.data.train.0.path: is required and missing\n"
        "recipe.yaml:6:15: stages.1.optimizer: must be a section of keys, got 5");
}

namespace longhaul::config_test {
struct Job {
  Overlay<ExportOptions> publish;
};
template <class Visitor>
void describe(Visitor& v, Job& o) {
  v.field("publish", o.publish, "changes to publish");
}
}  // namespace longhaul::config_test

TEST_CASE("required keys are not required in an overlay", "[config]") {
  const auto doc = Document::from_string("publish: {compress: false}\n");
  Job job;
  Diagnostics diagnostics;
  read(doc, job, diagnostics);
  CHECK(diagnostics.text() == "");
  CHECK(job.publish.apply({.target = "x"}) == ExportOptions{.target = "x", .compress = false});
}

TEST_CASE("the documentation is a table of all keys", "[config]") {
  const std::string table = docs<TestRecipe>();
  CHECK(table.starts_with("| key | type | default | meaning |\n|---|---|---|---|\n| `run` | section |  | the run as a whole |\n"));
  for (const char* row : {
           "| `run.seed` | integer | `1234` | of all random numbers |\n",
           "| `run.precision` | text, one of bf16, fp32 | `bf16` | of the matrix products |\n",
           "| `run.layers` | list of integers, >= 1 | `[]` | 1-based |\n",
           "| `run.publish` | section or null | `null` | after the run; null: not at all |\n",
           "| `run.publish.target` | text | required | where to |\n",
           "| `optimizer.name` | one of muon, adamw, off | `muon` | the algorithm |\n",
           "| `optimizer.clip_norm` | number or null, > 0 | `1.0` | largest norm of the gradient; null: no clipping |\n",
           "| `optimizer.betas` | list of numbers, a list of 2 entries, between 0 and 1 | `[0.9, 0.95]` | decay of the moments |\n",
           "| `optimizer.muon.momentum` | number, >= 0, < 1 | `0.95` | of the update |\n",
           "| `data.train` | list of sections | `[]` | what is trained on |\n",
           "| `data.train.N.weight` | number, > 0 | `1.0` | share of the tokens \\| relative |\n",
           "| `stages.N.name` | text | required | of the stage |\n",
           "| `stages.N.optimizer` | section of changes |  | changes to optimizer |\n",
       }) {
    INFO(row);
    CHECK(table.find(row) != std::string::npos);
  }
  CHECK(table.find("stages.N.optimizer.learning_rate") == std::string::npos);
}
