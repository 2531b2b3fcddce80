// See released_layout.h.
#include "convert/released_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cast.h"
#include "convert/mxfp4.h"

namespace longhaul {

namespace {

constexpr int64_t kHeadPadding = 128;

bool is_always_f32(std::string_view name, ReleasedFormat format) {
  if (name.ends_with(".A_log") || name.ends_with(".dt_bias")) {
    return true;
  }
  return format == ReleasedFormat::KimiK3 &&
         (name.ends_with("_conv1d.weight") || name.ends_with(".o_norm.weight") || name.ends_with("e_score_correction_bias"));
}

std::vector<int64_t> released_shape(const ModelTensor& tensor, ReleasedFormat format) {
  std::vector<int64_t> shape;
  for (int d = 0; d < tensor.shape.rank(); ++d) {
    shape.push_back(tensor.shape[d]);
  }
  if (!tensor.name.ends_with(".A_log")) {
    return shape;
  }
  const int64_t heads = shape.at(0);
  return format == ReleasedFormat::KimiK3 ? std::vector{round_up(heads, kHeadPadding)} : std::vector<int64_t>{1, 1, heads, 1};
}

// "…experts.w1.weight" to "…experts.3.w1.weight".
std::string expert_name(const std::string& stacked, int64_t expert) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = stacked.find(kExperts) + kExperts.size();
  return fmt::format("{}{}.{}", stacked.substr(0, at), expert, stacked.substr(at));
}

void require_groups(const ModelOptions& model) {
  const int64_t width = model.routed_expert_hidden_size.value_or(model.hidden_size);
  for (const auto& [size, what] : {std::pair{width, "input width of the experts"}, std::pair{model.moe_intermediate_size, "moe_intermediate_size"}}) {
    if (size % mxfp4::kGroup != 0) {
      throw ConversionError("MXFP4 needs groups of {} along the input dimension, but the {} is {}; export the experts in bf16", mxfp4::kGroup, what, size);
    }
  }
}

}  // namespace

ReleasedFormat released_format(const ModelOptions& m) {
  const LinearAttentionOptions& linear = m.linear_attn_config;
  const bool is_old = !m.attn_res_block_size && !m.routed_expert_hidden_size && !m.q_lora_rank && !m.mla_use_output_gate &&
                      !linear.gate_lower_bound && !linear.use_full_rank_gate && m.hidden_act == HiddenAct::Silu;
  return is_old ? ReleasedFormat::KimiLinear : ReleasedFormat::KimiK3;
}

std::vector<SafetensorsDeclaration> ReleasedSpec::declarations() const {
  if (type != ReleasedType::Mxfp4) {
    return {{.name = name, .dtype = type == ReleasedType::BF16 ? "BF16" : "F32", .shape = shape}};
  }
  std::vector<int64_t> packed = shape;
  packed.back() = div_exact(packed.back(), 2);
  std::vector<int64_t> scale = shape;
  scale.back() = div_exact(scale.back(), mxfp4::kGroup);
  return {{.name = name + "_packed", .dtype = "U8", .shape = std::move(packed)}, {.name = name + "_scale", .dtype = "U8", .shape = std::move(scale)}};
}

std::vector<ReleasedSpec> released_layout(const ModelOptions& model, const ReleasedTypes& types) {
  const ReleasedFormat format = released_format(model);
  const std::string prefix = format == ReleasedFormat::KimiK3 ? "language_model." : "";
  if (types.experts == ReleasedType::Mxfp4 && model.num_experts > 0) {
    require_groups(model);
  }
  std::vector<ReleasedSpec> specs;
  for (const ModelTensor& tensor : model_tensors(model)) {
    std::vector<int64_t> shape = released_shape(tensor, format);
    if (tensor.experts == 0) {
      specs.push_back({.name = prefix + tensor.name, .shape = std::move(shape),
                       .type = is_always_f32(tensor.name, format) ? ReleasedType::F32 : types.weights, .source = tensor.name});
      continue;
    }
    shape.erase(shape.begin());
    for (int64_t expert = 0; expert < tensor.experts; ++expert) {
      specs.push_back({.name = prefix + expert_name(tensor.name, expert), .shape = shape, .type = types.experts, .source = tensor.name, .expert = expert});
    }
  }
  return specs;
}

}  // namespace longhaul
