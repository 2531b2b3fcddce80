// Reading into structs: every kind of field, every kind of problem with its exact message, one pass for all of them.
#include "config/read.h"

#include <catch2/catch_test_macros.hpp>

#include "config/test_options.h"

using namespace longhaul;
using namespace longhaul::config;
using namespace longhaul::config_test;

namespace {

TestRecipe read_good(std::string_view text, const std::vector<std::string>& overrides = {}) {
  const auto doc = Document::from_string(text, overrides);
  TestRecipe recipe;
  Diagnostics diagnostics;
  read(doc, recipe, diagnostics);
  CHECK(diagnostics.text() == "");
  return recipe;
}

std::string problems_of(std::string_view text, const std::vector<std::string>& overrides = {}) {
  const auto doc = Document::from_string(text, overrides);
  TestRecipe recipe;
  Diagnostics diagnostics;
  read(doc, recipe, diagnostics);
  return diagnostics.text();
}

}  // namespace

TEST_CASE("every kind of field is read", "[config]") {
  const TestRecipe recipe = read_good(
      "run: {name: 8k, dir: 'runs/a b', seed: 1_000, deterministic: true, signals: [TERM], layers: [1, 2e1], publish: {target: x}}\n"
      "optimizer:\n"
      "  name: adamw\n"
      "  learning_rate: 1e-3\n"
      "  epsilon: 1.0e-6\n"
      "  warmup_steps: 1e3\n"
      "  clip_norm: null\n"
      "  betas: [0.5, 1]\n"
      "  muon: {iterations: 7}\n"
      "data: {train: [{path: a, weight: 2}, {path: b}]}\n"
      "stages:\n"
      "- name: first\n"
      "  steps: 3\n"
      "- {name: second, sequence_length: 65536}\n"
      "x_notes: {anything: [1, {goes: here}]}\n"
      "x_: 5\n");
  CHECK(recipe.run.name == "8k");
  CHECK(recipe.run.dir == "runs/a b");
  CHECK(recipe.run.seed == 1000);
  CHECK(recipe.run.deterministic);
  CHECK(recipe.run.signals == std::vector<std::string>{"TERM"});
  CHECK(recipe.run.layers == std::vector<int64_t>{1, 20});
  CHECK(recipe.run.publish == ExportOptions{.target = "x"});
  CHECK(recipe.optimizer == OptimizerOptions{.name = OptimizerKind::AdamW,
                                             .learning_rate = 1e-3,
                                             .epsilon = 1e-6F,
                                             .warmup_steps = 1000,
                                             .clip_norm = std::nullopt,
                                             .betas = {0.5, 1.0},
                                             .muon = {.momentum = 0.95, .iterations = 7}});
  CHECK(recipe.data.train == std::vector<SourceOptions>{{.path = "a", .weight = 2.0}, {.path = "b", .weight = 1.0}});
  REQUIRE(recipe.stages.size() == 2);
  CHECK(recipe.stages[0].steps == 3);
  CHECK(recipe.stages[0].sequence_length == 4096);
  CHECK_FALSE(recipe.stages[1].steps.has_value());
  CHECK(recipe.stages[1].sequence_length == 65536);
}

TEST_CASE("an empty section keeps the defaults", "[config]") {
  CHECK(read_good("optimizer:\nrun: {}\n").optimizer == OptimizerOptions{});
}

TEST_CASE("unknown keys are errors at every level, with the key that was meant", "[config]") {
  CHECK(problems_of("learning_rate: 1e-3\n") == "recipe.yaml:1:1: learning_rate: unknown key; did you mean optimizer.learning_rate?");
  CHECK(problems_of("parallel: {pipline: 4}\n") == "recipe.yaml:1:12: parallel.pipline: unknown key; did you mean parallel.pipeline?");
  CHECK(problems_of("paralellism: ddp\n") == "recipe.yaml:1:1: paralellism: unknown key; did you mean parallel?");
  CHECK(problems_of("stages:\n  - name: a\n  - name: b\n    seq_len: 5\n") ==
        "recipe.yaml:4:5: stages.1.seq_len: unknown key; did you mean stages.1.sequence_length?");
  CHECK(problems_of("stages:\n  - {name: a, optimizer: {muon: {iteration: 5}}}\n") ==
        "recipe.yaml:2:34: stages.0.optimizer.muon.iteration: unknown key; did you mean stages.0.optimizer.muon.iterations?");
  CHECK(problems_of("data:\n  train:\n    - {path: x, wieght: 5}\n") ==
        "recipe.yaml:3:17: data.train.0.wieght: unknown key; did you mean data.train.0.weight?");
  CHECK(problems_of("run: {publish: {target: a, zzz: 5}}\n") ==
        "recipe.yaml:1:28: run.publish.zzz: unknown key; known keys of run.publish: target, compress");
  // Only the top level has the free namespace.
  CHECK(problems_of("run: {x_notes: 5}\n").starts_with("recipe.yaml:1:7: run.x_notes: unknown key"));
}

TEST_CASE("wrong types say what is wanted and what was found", "[config]") {
  CHECK(problems_of("run: {seed: fast}\n") == "recipe.yaml:1:7: run.seed: must be an integer, got fast");
  CHECK(problems_of("run: {seed: 1.5}\n") == "recipe.yaml:1:7: run.seed: must be an integer, got 1.5");
  CHECK(problems_of("run: {seed: \"5\"}\n") == "recipe.yaml:1:7: run.seed: must be an integer, got \"5\"; remove the quotes");
  CHECK(problems_of("run: {seed: }\n") == "recipe.yaml:1:7: run.seed: must be an integer, got null");
  CHECK(problems_of("run: {seed: [1]}\n") == "recipe.yaml:1:7: run.seed: must be an integer, got a list");
  CHECK(problems_of("run: {seed: {a: 1}}\n") == "recipe.yaml:1:7: run.seed: must be an integer, got a section");
  CHECK(problems_of("run: {deterministic: yes}\n") == "recipe.yaml:1:7: run.deterministic: must be true or false, got yes");
  CHECK(problems_of("run: {name: [a]}\n") == "recipe.yaml:1:7: run.name: must be text, got a list");
  CHECK(problems_of("run: {name: true}\n") ==
        "recipe.yaml:1:7: run.name: must be text (in quotes if the word itself is meant), got true");
  CHECK(problems_of("optimizer: {learning_rate: .inf}\n") ==
        "recipe.yaml:1:13: optimizer.learning_rate: must be a finite number, got .inf");
  CHECK(problems_of("optimizer: {name: muno}\n") ==
        "recipe.yaml:1:13: optimizer.name: must be one of muon, adamw, off, got muno; did you mean muon?");
  CHECK(problems_of("optimizer: {name: [x]}\n") == "recipe.yaml:1:13: optimizer.name: must be one of muon, adamw, off, got a list");
  CHECK(problems_of("optimizer: {betas: 0.9}\n") ==
        "recipe.yaml:1:13: optimizer.betas: must be a list of numbers, got 0.9; write [0.9]");
  CHECK(problems_of("optimizer: {betas: [0.9, x]}\n") == "recipe.yaml:1:26: optimizer.betas.1: must be a number, got x");
  CHECK(problems_of("optimizer: {clip_norm: x}\n") == "recipe.yaml:1:13: optimizer.clip_norm: must be a number, got x");
  CHECK(problems_of("optimizer: muon\n") == "recipe.yaml:1:1: optimizer: must be a section of keys, got muon");
  CHECK(problems_of("optimizer: [muon]\n") == "recipe.yaml:1:1: optimizer: must be a section of keys, got a list");
  CHECK(problems_of("stages: {name: x}\n") == "recipe.yaml:1:1: stages: must be a list of sections, got a section");
  CHECK(problems_of("stages:\n") == "recipe.yaml:1:1: stages: must be a list of sections, got null");
  CHECK(problems_of("stages: [a, ~]\n") ==
        "recipe.yaml:1:10: stages.0: must be a section of keys, got a\n"
        "recipe.yaml:1:13: stages.1: must be a section of keys, got null");
  CHECK(problems_of("run: {seed: \"a\\nb\"}\n") == "recipe.yaml:1:7: run.seed: must be an integer, got \"a\\nb\"");
}

TEST_CASE("broken rules and missing keys", "[config]") {
  CHECK(problems_of("optimizer: {learning_rate: -1}\n") == "recipe.yaml:1:13: optimizer.learning_rate: must be > 0, got -1");
  CHECK(problems_of("optimizer: {warmup_steps: -1}\n") == "recipe.yaml:1:13: optimizer.warmup_steps: must be >= 0, got -1");
  CHECK(problems_of("optimizer: {clip_norm: 0}\n") == "recipe.yaml:1:13: optimizer.clip_norm: must be > 0, got 0");
  CHECK(problems_of("optimizer: {betas: [0.9]}\n") == "recipe.yaml:1:13: optimizer.betas: must be a list of 2 entries, got 1");
  CHECK(problems_of("optimizer: {betas: [0.9, 1.5]}\n") == "recipe.yaml:1:26: optimizer.betas.1: must be between 0 and 1, got 1.5");
  CHECK(problems_of("optimizer: {muon: {momentum: 1}}\n") == "recipe.yaml:1:20: optimizer.muon.momentum: must be < 1, got 1");
  CHECK(problems_of("optimizer: {muon: {iterations: 21}}\n") ==
        "recipe.yaml:1:20: optimizer.muon.iterations: must be between 1 and 20, got 21");
  CHECK(problems_of("parallel: {micro_batch_tokens: 100}\n") ==
        "recipe.yaml:1:12: parallel.micro_batch_tokens: must be a multiple of 64, got 100");
  CHECK(problems_of("run: {precision: fp8}\n") == "recipe.yaml:1:7: run.precision: must be one of bf16, fp32, got \"fp8\"");
  CHECK(problems_of("run: {name: ''}\n") == "recipe.yaml:1:7: run.name: must be non-empty, got nothing");
  CHECK(problems_of("run: {signals: []}\n") == "recipe.yaml:1:7: run.signals: must be non-empty, got nothing");
  CHECK(problems_of("run: {layers: [1, 0, 2]}\n") == "recipe.yaml:1:19: run.layers.1: must be >= 1, got 0");
  CHECK(problems_of("stages:\n  - steps: 5\n") == "recipe.yaml:2:5: stages.0.name: is required and missing");
  CHECK(problems_of("run: {publish: {compress: true}}\n") == "recipe.yaml:1:7: run.publish.target: is required and missing");
  CHECK(problems_of("data: {train: [{weight: 0}]}\n") ==
        "recipe.yaml:1:16: data.train.0.path: is required and missing\n"
        "recipe.yaml:1:17: data.train.0.weight: must be > 0, got 0");
}

TEST_CASE("all problems come in one error, in the order of the file, overrides last", "[config]") {
  const auto doc = Document::from_string(
      "stages:\n"
      "  - name: a\n"
      "    steps: x\n"
      "learning_rate: 5\n"
      "optimizer:\n"
      "  name: muon\n"
      "  name: adamw\n"
      "  learning_rate: 1e-3\n"
      "  clip_norm: &a 5\n",
      {"optimizer.learning_rate=-1", "run.seeed=5", "stages.4.steps=5"});
  TestRecipe recipe;
  Diagnostics diagnostics;
  read(doc, recipe, diagnostics);
  CHECK(diagnostics.count() == 7);
  try {
    diagnostics.throw_if_any();
    FAIL("must throw");
  } catch (const RecipeError& error) {
    CHECK(error.exit_code() == 2);
    CHECK(std::string(error.what()) ==
          "recipe.yaml:3:5: stages.0.steps: must be an integer, got x\n"
          "recipe.yaml:4:1: learning_rate: unknown key; did you mean optimizer.learning_rate?\n"
          "recipe.yaml:7:3: optimizer.name: duplicate key; it was first given on line 6\n"
          "recipe.yaml:9:3: optimizer.clip_norm: anchors and aliases (& and *) are not supported; write the values out\n"
          "--set stages.4.steps=5: stages.4.steps: stages has the entries 0 to 0, got 4\n"
          "--set run.seeed=5: run.seeed: unknown key; did you mean run.seed?\n"
          "--set optimizer.learning_rate=-1: optimizer.learning_rate: must be > 0, got -1");
  }
  CHECK_NOTHROW(Diagnostics{}.throw_if_any());
}

TEST_CASE("owners add problems at a key or its nearest parent", "[config]") {
  const auto doc = Document::from_string("parallel:\n  pipeline: 3\nstages:\n  - name: a\n  - name: b\n", {"parallel.data=2"});
  TestRecipe recipe;
  Diagnostics diagnostics;
  read(doc, recipe, diagnostics);
  REQUIRE(diagnostics.empty());
  diagnostics.add("parallel.pipeline", "must divide the {} blocks, got {}", 8, recipe.parallel.pipeline);
  diagnostics.add("parallel.data", "is too large");
  diagnostics.add("stages.1.steps", std::string("or tokens must be given"));
  diagnostics.add("optimizer.learning_rate", "is too large");
  diagnostics.add("optimizer.learning_rate", "is too large");
  diagnostics.add(Problem{.file = "corpus.idx", .message = "is cut off"});
  CHECK(diagnostics.has("optimizer"));
  CHECK(diagnostics.has("stages.1"));
  CHECK(diagnostics.has("parallel.data"));
  for (const char* none : {"stages.0", "stages.1.step", "opt", "data", "parallel.data.x"}) {
    CHECK_FALSE(diagnostics.has(none));
  }
  CHECK(diagnostics.text() ==
        "recipe.yaml:1:1: optimizer.learning_rate: is too large\n"
        "recipe.yaml:2:3: parallel.pipeline: must divide the 8 blocks, got 3\n"
        "recipe.yaml:5:5: stages.1.steps: or tokens must be given\n"
        "--set parallel.data=2: parallel.data: is too large\n"
        "corpus.idx: is cut off");
  Diagnostics bare;
  bare.add("a.b", "is wrong");
  CHECK(bare.text() == "a.b: is wrong");
}

TEST_CASE("problems beyond a hundred are counted", "[config]") {
  std::string text;
  for (int i = 0; i < 5'000; ++i) {
    text += fmt::format("unknown{}: 1\n", i);
  }
  const std::string problems = problems_of(text);
  CHECK(problems.starts_with("recipe.yaml:1:1: unknown0: unknown key"));
  CHECK(problems.ends_with("\n... and 4900 more problems"));
}

TEST_CASE("strange keys stay on one line", "[config]") {
  CHECK(problems_of("\"a\\nb\": 1\n").starts_with("recipe.yaml:1:1: a\\x0ab: unknown key"));
  CHECK(problems_of("\"" + std::string(1000, 'k') + "\": 1\n").size() < 400);
  CHECK(problems_of("optimizer.learning_rate: 1\n") ==
        "recipe.yaml:1:1: optimizer.learning_rate: unknown key; dots are for --set; in the file, nest the keys in their sections");
  CHECK(problems_of("run: {seed:5}\n") == "recipe.yaml:1:7: run.seed:5: unknown key; write a space after the ':'");
}

TEST_CASE("a section is read over a filled struct", "[config]") {
  const auto doc = Document::from_string("stages:\n  - name: a\n    optimizer: {learning_rate: 1e-5, muon: {iterations: 9}, betas: [0, 0]}\n");
  OptimizerOptions options{.name = OptimizerKind::AdamW, .learning_rate = 0.5, .warmup_steps = 77, .muon = {.momentum = 0.1}};
  Diagnostics diagnostics;
  CHECK(read_section(doc, "stages.0.optimizer", options, diagnostics));
  CHECK(diagnostics.text() == "");
  CHECK(options == OptimizerOptions{.name = OptimizerKind::AdamW,
                                    .learning_rate = 1e-5,
                                    .warmup_steps = 77,
                                    .betas = {0.0, 0.0},
                                    .muon = {.momentum = 0.1, .iterations = 9}});
  CHECK(doc.given("stages.0.optimizer.muon.iterations"));
  CHECK_FALSE(doc.given("stages.0.optimizer.muon.momentum"));
  CHECK_FALSE(read_section(doc, "optimizer", options, diagnostics));
  CHECK(diagnostics.empty());
}

TEST_CASE("options of read: unknown keys of foreign files, required keys from elsewhere", "[config]") {
  const auto doc = Document::from_string("{\"config\": {\"compress\": false, \"architectures\": [\"x\"]}}", {}, "config.json");
  ExportOptions options;
  Diagnostics strict;
  static_cast<void>(read_section(doc, "config", options, strict));
  CHECK(strict.text() ==
        "config.json:1:2: config.target: is required and missing\n"
        "config.json:1:32: config.architectures: unknown key; known keys of config: target, compress");
  Diagnostics lax;
  static_cast<void>(read_section(doc, "config", options, lax,
                                 {.unknown_keys = UnknownKeys::Ignore, .missing_keys = MissingKeys::Allow}));
  CHECK(lax.empty());
  CHECK_FALSE(options.compress);
}

namespace longhaul::config_test {
struct Twice {
  int a = 0;
  int b = 0;
};
template <class Visitor>
void describe(Visitor& v, Twice& o) {
  v.field("a", o.a, "");
  v.field("a", o.b, "");
}
}  // namespace longhaul::config_test

TEST_CASE("a key described twice is a mistake of the program", "[config]") {
  const auto doc = Document::from_string("a: 1\n");
  Twice options;
  Diagnostics diagnostics;
  CHECK_THROWS_AS(read(doc, options, diagnostics), InternalError);
}

TEST_CASE("a damaged file ends with problems or a RecipeError, never otherwise", "[config]") {
  const std::string good =
      "run: {name: 8k, seed: 1e3, signals: [USR1], publish: {target: \"x\\n\"}}\n"
      "optimizer:\n  learning_rate: 1e-3\n  betas: [0.1, 0.2]\n  muon: {iterations: 7}\n"
      "stages:\n- name: 'first'\n  optimizer: {clip_norm: null}\n- {name: |\n   text\n  }\nx_notes: [é]\n";
  const std::string_view pieces[] = {"\t", " ", "\n", ":", ": ", "- ", "[", "]", "{", "}", "\"", "'", "&a ", "*a", "!", "#", "|", ">",
                                     "? ", "---\n", "%", "~", ",", "\\", "<<: ", "\xff", "\xc3", std::string_view("\0", 1), "1e999", "."};
  uint64_t state = 12345;
  const auto random = [&](std::size_t n) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;  // a linear congruential generator is enough here
    return static_cast<std::size_t>(state >> 33U) % n;
  };
  int64_t refused = 0;
  for (int i = 0; i < 4'000; ++i) {
    std::string text = good;
    for (std::size_t edit = 0; edit <= random(4); ++edit) {
      const std::size_t at = random(text.size());
      const std::size_t length = random(3) == 0 ? random(text.size() - at) : random(2);
      text.replace(at, length, pieces[random(std::size(pieces))]);
    }
    std::string override_text = "optimizer.betas=[1, 2]";
    override_text.replace(random(override_text.size()), 1, pieces[random(std::size(pieces))]);
    INFO(text << "\n--set " << override_text);
    try {
      const auto doc = Document::from_string(text, {override_text});
      TestRecipe recipe;
      Diagnostics diagnostics;
      read(doc, recipe, diagnostics);
      diagnostics.throw_if_any();
      static_cast<void>(dump(recipe));
    } catch (const RecipeError& error) {
      CHECK(std::string_view(error.what()).size() > 10);
      ++refused;
    }
  }
  CHECK(refused > 1'000);
}
