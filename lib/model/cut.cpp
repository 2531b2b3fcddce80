// See cut.h.
#include "model/cut.h"

#include <algorithm>
#include <limits>

#include "base/cast.h"
#include "base/error.h"
#include "model/flops.h"

namespace longhaul {
namespace {

constexpr double kTypicalDocument = 8192;  // tokens; only the balance of stages depends on it

std::string list(const std::vector<int64_t>& values) { return fmt::format("{}", fmt::join(values, ", ")); }

std::vector<StageRange> ranges(const ModelOptions& model, const std::vector<int64_t>& cuts) {
  std::vector<StageRange> stages;
  int64_t first = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const int64_t last = i < cuts.size() ? cuts[i] : model.num_hidden_layers;
    stages.push_back({.first_layer = first, .last_layer = last, .has_embedding = i == 0, .has_head = i == cuts.size()});
    first = last;
  }
  return stages;
}

// Cost of layers [first, last), with the head where it belongs.
double cost(const ModelOptions& model, int64_t first, int64_t last) {
  double total = last == model.num_hidden_layers ? 2.0 * static_cast<double>(model.vocab_size * model.hidden_size) : 0.0;
  for (int64_t layer = first; layer < last; ++layer) {
    total += forward_flops(model, layer, kTypicalDocument);
  }
  return total;
}

}  // namespace

std::vector<int64_t> legal_cuts(const ModelOptions& model) {
  const int64_t step = std::max<int64_t>(model.block_size(), 1);
  std::vector<int64_t> cuts;
  for (int64_t layer = step; layer < model.num_hidden_layers; layer += step) {
    cuts.push_back(layer);
  }
  return cuts;
}

std::vector<StageRange> cut_stages(const ModelOptions& model, int64_t stages) {
  std::vector<int64_t> bounds{0};
  for (const int64_t cut : legal_cuts(model)) {
    bounds.push_back(cut);
  }
  bounds.push_back(model.num_hidden_layers);
  const auto pieces = narrow<int64_t>(bounds.size()) - 1;
  if (stages > pieces) {
    throw RecipeError("parallel.pipeline: {} stages need {} cuts, but {} layers in Attention-Residual blocks of {} can only be cut in "
                      "front of the layers {}; use pipeline <= {}",
                      stages, stages - 1, model.num_hidden_layers, model.block_size(), pieces > 1 ? list(legal_cuts(model)) : "(none)", pieces);
  }
  // best[s][e]: least maximal cost of s stages over the first e pieces; from[s][e]: where the last of them starts.
  const auto n = static_cast<size_t>(pieces);
  const auto s_count = static_cast<size_t>(stages);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(s_count + 1, std::vector<double>(n + 1, kInfinity));
  std::vector<std::vector<size_t>> from(s_count + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0;
  for (size_t s = 1; s <= s_count; ++s) {
    for (size_t end = s; end <= n; ++end) {
      for (size_t start = s - 1; start < end; ++start) {
        const double worst = std::max(best[s - 1][start], cost(model, bounds[start], bounds[end]));
        if (worst < best[s][end]) {
          best[s][end] = worst;
          from[s][end] = start;
        }
      }
    }
  }
  std::vector<int64_t> cuts;
  for (size_t s = s_count, end = n; s > 1; --s) {
    end = from[s][end];
    cuts.push_back(bounds[end]);
  }
  std::reverse(cuts.begin(), cuts.end());
  return ranges(model, cuts);
}

std::vector<StageRange> cut_stages_at(const ModelOptions& model, const std::vector<int64_t>& cuts) {
  const std::vector<int64_t> legal = legal_cuts(model);
  for (size_t i = 0; i < cuts.size(); ++i) {
    if (!std::binary_search(legal.begin(), legal.end(), cuts[i]) || (i > 0 && cuts[i] <= cuts[i - 1])) {
      throw RecipeError("parallel.pipeline_cuts: cannot cut in front of layer {}; ascending cuts at the boundaries of Attention-Residual "
                        "blocks are possible: {}",
                        cuts[i], list(legal));
    }
  }
  return ranges(model, cuts);
}

int64_t sources_before(const ModelOptions& model, int64_t layer) {
  return model.block_size() == 0 || layer == 0 ? 1 : 1 + (layer + model.block_size() - 1) / model.block_size();
}

}  // namespace longhaul
