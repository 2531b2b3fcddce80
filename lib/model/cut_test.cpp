// Where a pipeline may cut, how stages are balanced, and how many sources cross a cut.
#include "model/cut.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>

#include "base/error.h"
#include "model/flops.h"
#include "model/model_test_support.h"

namespace longhaul {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

// Layers that differ in cost: every third has MLA, the first is dense.
ModelOptions model_of(int64_t layers, std::optional<int64_t> block_size) {
  ModelOptions o = testing::tiny_k3();
  o.num_hidden_layers = layers;
  o.attn_res_block_size = block_size;
  o.linear_attn_config.kda_layers.clear();
  o.linear_attn_config.full_attn_layers.clear();
  for (int64_t number = 1; number <= layers; ++number) {
    (number % 3 == 0 ? o.linear_attn_config.full_attn_layers : o.linear_attn_config.kda_layers).push_back(number);
  }
  return o;
}

std::vector<int64_t> cuts_of(const std::vector<StageRange>& stages) {
  std::vector<int64_t> cuts;
  for (size_t i = 1; i < stages.size(); ++i) {
    cuts.push_back(stages[i].first_layer);
  }
  return cuts;
}

TEST_CASE("cuts fall on the boundaries of residual blocks", "[model]") {
  CHECK(legal_cuts(model_of(12, 4)) == std::vector<int64_t>{4, 8});
  CHECK(legal_cuts(model_of(13, 4)) == std::vector<int64_t>{4, 8, 12});
  CHECK(legal_cuts(model_of(4, 1)) == std::vector<int64_t>{1, 2, 3});
  CHECK(legal_cuts(model_of(4, std::nullopt)) == std::vector<int64_t>{1, 2, 3});
  CHECK(legal_cuts(model_of(4, 7)).empty());
}

TEST_CASE("named cuts are taken when they are legal, and refused with those that are", "[model]") {
  const ModelOptions model = model_of(12, 4);
  const std::vector<StageRange> stages = cut_stages_at(model, {4, 8});
  CHECK(stages == std::vector<StageRange>{{.first_layer = 0, .last_layer = 4, .has_embedding = true, .has_head = false},
                                          {.first_layer = 4, .last_layer = 8, .has_embedding = false, .has_head = false},
                                          {.first_layer = 8, .last_layer = 12, .has_embedding = false, .has_head = true}});
  CHECK(cut_stages_at(model, {}) == std::vector<StageRange>{{.first_layer = 0, .last_layer = 12, .has_embedding = true, .has_head = true}});
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{5, 9}, {4, 9}, {8, 4}, {4, 4}, {0}, {12}, {-4}}) {
    CHECK_THROWS_MATCHES(cut_stages_at(model, wrong), RecipeError, MessageMatches(ContainsSubstring("4, 8")));
  }
  CHECK_THROWS_MATCHES(cut_stages_at(model, {5, 9}), RecipeError, MessageMatches(ContainsSubstring("layer 5")));
}

TEST_CASE("more stages than blocks are refused with the legal cuts", "[model]") {
  CHECK(cuts_of(cut_stages(model_of(12, 4), 3)) == std::vector<int64_t>{4, 8});
  CHECK_THROWS_MATCHES(cut_stages(model_of(12, 4), 4), RecipeError,
                       MessageMatches(ContainsSubstring("4, 8") && ContainsSubstring("pipeline <= 3")));
  CHECK_THROWS_MATCHES(cut_stages(model_of(3, 4), 2), RecipeError, MessageMatches(ContainsSubstring("pipeline <= 1")));
}

// The most expensive stage, by the cost that cut.cpp states.
double worst_stage(const ModelOptions& model, const std::vector<StageRange>& stages) {
  double worst = 0;
  for (const StageRange& stage : stages) {
    double cost = stage.has_head ? 2.0 * static_cast<double>(model.vocab_size * model.hidden_size) : 0;
    for (int64_t layer = stage.first_layer; layer < stage.last_layer; ++layer) {
      cost += forward_flops(model, layer, 8192);
    }
    worst = std::max(worst, cost);
  }
  return worst;
}

// The least worst stage over all choices of `count` cuts among legal[from ...].
double best_of_all(const ModelOptions& model, const std::vector<int64_t>& legal, size_t from, int64_t count, std::vector<int64_t> chosen) {
  if (count == 0) {
    return worst_stage(model, cut_stages_at(model, chosen));
  }
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = from; i < legal.size(); ++i) {
    chosen.push_back(legal[i]);
    best = std::min(best, best_of_all(model, legal, i + 1, count - 1, chosen));
    chosen.pop_back();
  }
  return best;
}

TEST_CASE("no other cuts make the most expensive stage cheaper", "[model]") {
  for (const auto& [layers, block] :
       std::vector<std::pair<int64_t, std::optional<int64_t>>>{{11, std::nullopt}, {11, 2}, {9, 1}, {14, 3}}) {
    const ModelOptions model = model_of(layers, block);
    const std::vector<int64_t> legal = legal_cuts(model);
    for (int64_t stages = 1; stages <= std::min<int64_t>(4, std::ssize(legal) + 1); ++stages) {
      INFO(layers << " layers, " << stages << " stages");
      const std::vector<StageRange> cut = cut_stages(model, stages);
      CHECK(std::ssize(cut) == stages);
      CHECK(worst_stage(model, cut) == best_of_all(model, legal, 0, stages - 1, {}));
    }
  }
}

TEST_CASE("the sources before a cut are the blocks begun below it, and the stream", "[model]") {
  ModelOptions model = model_of(93, 12);
  // Finished blocks and the prefix: 1 + ceil(layer / 12).
  const std::vector<std::pair<int64_t, int64_t>> rows{{12, 1}, {13, 2}, {24, 2}, {31, 3}, {62, 6}};
  for (const auto& [layer, blocks] : rows) {
    INFO("before layer " << layer);
    CHECK(sources_before(model, layer) == 1 + blocks);
  }
  CHECK(sources_before(model, 0) == 1);
  model.attn_res_block_size.reset();
  CHECK(sources_before(model, 12) == 1);
}

}  // namespace
}  // namespace longhaul
