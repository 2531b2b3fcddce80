// See external_names.h.
#include "convert/external_names.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <numeric>

#include "base/cast.h"

namespace longhaul {
namespace {

constexpr std::string_view kModelPrefix = "language_model.";
constexpr std::string_view kLayerPrefix = "model.layers.";

int64_t numel(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// "12.rest" -> 12 and "rest".
struct Numbered {
  int64_t number = 0;
  std::string_view rest;
};
std::optional<Numbered> split_number(std::string_view text) {
  Numbered result;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result.number);
  if (error != std::errc() || end == text.data() + text.size() || *end != '.') {
    return std::nullopt;
  }
  result.rest = text.substr(static_cast<size_t>(end - text.data()) + 1);
  return result;
}

void replace_prefix(std::string& name, std::string_view from, std::string_view to) {
  if (name.starts_with(from)) {
    name = std::string(to) + name.substr(from.size());
  }
}

// One name for what has several: feed-forward under mlp. or block_sparse_moe., decay parameters under forget_gate.
std::string canonical(std::string_view name, bool is_dense) {
  std::string result(name);
  if (is_dense) {
    replace_prefix(result, "block_sparse_moe.", "mlp.");
  } else {
    replace_prefix(result, "mlp.", "block_sparse_moe.");
  }
  replace_prefix(result, "self_attn.forget_gate.", "self_attn.");
  return result;
}

class Parts {
 public:
  Parts(std::string prefix, int64_t elements) : prefix_(std::move(prefix)), elements_(elements) {}

  [[nodiscard]] std::vector<TensorPart> whole(std::string_view name) const { return {{prefix_ + std::string(name), 0, 0, elements_}}; }

  // One expert of a stack.
  [[nodiscard]] std::vector<TensorPart> expert(std::string_view name, int64_t expert) const {
    return {{prefix_ + "block_sparse_moe.experts." + std::string(name), 0, expert * elements_, elements_}};
  }

  // Equal consecutive blocks of the tensor, each a whole parameter.
  [[nodiscard]] std::vector<TensorPart> blocks(std::initializer_list<const char*> names) const {
    const int64_t each = div_exact(elements_, narrow<int64_t>(names.size()));
    std::vector<TensorPart> parts;
    for (const char* name : names) {
      parts.push_back({prefix_ + name, narrow<int64_t>(parts.size()) * each, 0, each});
    }
    return parts;
  }

  // [experts, 2 * rows, columns]: the first half of each expert's rows is w1, the second w3.
  [[nodiscard]] std::vector<TensorPart> merged_gate_up(int64_t experts) const {
    const int64_t half = div_exact(elements_, 2 * experts);
    std::vector<TensorPart> parts;
    for (int64_t e = 0; e < experts; ++e) {
      parts.push_back({prefix_ + "block_sparse_moe.experts.w1.weight", 2 * e * half, e * half, half});
      parts.push_back({prefix_ + "block_sparse_moe.experts.w3.weight", (2 * e + 1) * half, e * half, half});
    }
    return parts;
  }

 private:
  std::string prefix_;
  int64_t elements_;
};

std::vector<TensorPart> layer_parts(int64_t layer, std::string_view name, const std::vector<int64_t>& shape, const ModelOptions& model) {
  const std::string own = canonical(name, model.is_dense(layer));
  const Parts parts(fmt::format("{}{}.", kLayerPrefix, layer), numel(shape));
  constexpr std::string_view kExperts = "block_sparse_moe.experts.";
  if (own.starts_with(kExperts)) {
    const std::string_view rest = std::string_view(own).substr(kExperts.size());
    if (rest == "gate_up_proj") {
      return parts.merged_gate_up(model.num_experts);
    }
    if (rest == "down_proj") {
      return parts.whole("block_sparse_moe.experts.w2.weight");
    }
    const std::optional<Numbered> one = split_number(rest);
    return one && one->number < model.num_experts ? parts.expert(one->rest, one->number) : parts.whole(own);
  }
  if (own == "self_attn.conv1d.weight") {
    return parts.blocks({"self_attn.q_conv1d.weight", "self_attn.k_conv1d.weight", "self_attn.v_conv1d.weight"});
  }
  if (own == "self_attn.A_log") {
    // Released K3 files pad it with zeros behind the last head.
    return {{fmt::format("{}{}.{}", kLayerPrefix, layer, own), 0, 0, std::min(numel(shape), model.linear_attn_config.num_heads)}};
  }
  return parts.whole(own);
}

}  // namespace

std::string selection_bias_name(int64_t layer) {
  return fmt::format("{}{}.block_sparse_moe.gate.e_score_correction_bias", kLayerPrefix, layer);
}

std::vector<TensorPart> parts_of(std::string_view external_name, const std::vector<int64_t>& shape, const ModelOptions& model) {
  std::string_view name = external_name;
  if (name.starts_with(kModelPrefix)) {
    name.remove_prefix(kModelPrefix.size());
  }
  if (!name.starts_with(kLayerPrefix)) {
    return Parts("", numel(shape)).whole(name);
  }
  const std::optional<Numbered> layer = split_number(name.substr(kLayerPrefix.size()));
  if (!layer || layer->number >= model.num_hidden_layers) {
    return {};
  }
  return layer_parts(layer->number, layer->rest, shape, model);
}

}  // namespace longhaul
