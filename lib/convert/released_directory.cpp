// See released_directory.h.
#include "convert/released_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "convert/mxfp4.h"
#include "model/config_json.h"
#include "storage/atomic_write.h"

namespace longhaul {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPackedSuffix = "_packed";
constexpr std::string_view kScaleSuffix = "_scale";

// {tensor: file} of the index.
std::map<std::string, std::string> read_index(const fs::path& path) {
  try {
    return nlohmann::json::parse(read_text(path, ErrorKind::Conversion)).at("weight_map").get<std::map<std::string, std::string>>();
  } catch (const nlohmann::json::exception& error) {
    throw ConversionError("{}: not an index of tensors: {}", path.string(), error.what());
  }
}

// "model.…experts.3.w1.weight" of its codes or scales.
bool strip_suffix(std::string_view& name, std::string_view suffix) {
  if (!name.ends_with(std::string("weight") + std::string(suffix))) {
    return false;
  }
  name.remove_suffix(suffix.size());
  return true;
}

bool is_bytes(const SafetensorsEntry& entry) { return entry.dtype == "U8" || entry.dtype == "F8_E8M0"; }

// Empty when codes and scales belong together.
std::string pair_problem(const SafetensorsEntry& packed, const SafetensorsEntry& scale) {
  if (packed.dtype != "U8" || !is_bytes(scale)) {
    return fmt::format("MXFP4 codes and scales must be U8, got {} and {}", packed.dtype, scale.dtype);
  }
  const auto text = [](const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); };
  std::vector<int64_t> wanted = packed.shape;
  if (wanted.empty() || wanted.back() % mxfp4::kGroupBytes != 0) {
    return fmt::format("MXFP4 codes must fill groups of {} bytes along the last dimension, got {}", mxfp4::kGroupBytes, text(packed.shape));
  }
  wanted.back() /= mxfp4::kGroupBytes;
  return scale.shape == wanted ? "" : fmt::format("scales of the codes {} must be {}, got {}", text(packed.shape), text(wanted), text(scale.shape));
}

// So that products of sizes fit into 63 bits, and nobody lists the tensors of a model that the files cannot hold. The largest
// released sizes are the vocabulary of 163,840 and 92 layers of 896 experts.
void require_plausible(const ModelOptions& m, int64_t tensors, const fs::path& config) {
  constexpr int64_t kLargest = int64_t{1} << 19;
  constexpr int64_t kMostExperts = int64_t{1} << 24;
  const std::initializer_list<std::pair<const char*, int64_t>> sizes{
      {"vocab_size", m.vocab_size},
      {"hidden_size", m.hidden_size},
      {"num_attention_heads", m.num_attention_heads},
      {"q_lora_rank", m.q_lora_rank.value_or(0)},
      {"kv_lora_rank", m.kv_lora_rank},
      {"qk_nope_head_dim", m.qk_nope_head_dim},
      {"qk_rope_head_dim", m.qk_rope_head_dim},
      {"v_head_dim", m.v_head_dim},
      {"linear_attn_config.num_heads", m.linear_attn_config.num_heads},
      {"linear_attn_config.head_dim", m.linear_attn_config.head_dim},
      {"linear_attn_config.short_conv_kernel_size", m.linear_attn_config.short_conv_kernel_size},
      {"intermediate_size", m.intermediate_size},
      {"num_experts", m.num_experts},
      {"num_shared_experts", m.num_shared_experts},
      {"moe_intermediate_size", m.moe_intermediate_size},
      {"routed_expert_hidden_size", m.routed_expert_hidden_size.value_or(0)}};
  for (const auto& [name, size] : sizes) {
    if (size > kLargest) {
      throw ConversionError("{}: {} is {}, more than any model has ({} at most)", config.string(), name, size, kLargest);
    }
  }
  if (m.num_hidden_layers > tensors || m.num_hidden_layers * m.num_experts > kMostExperts) {
    throw ConversionError("{}: {} layers of {} experts cannot be in files of {} tensors", config.string(), m.num_hidden_layers, m.num_experts,
                          tensors);
  }
}

}  // namespace

ReleasedDirectory::ReleasedDirectory(const fs::path& directory) : path_(directory) {
  const fs::path config = directory / kReleasedConfig;
  options_ = model_options_from_config_file(config);
  config_text_ = read_text(config, ErrorKind::Conversion);
  open_files();
  std::vector<Located> all;
  for (const SafetensorsFile& file : files_) {
    for (const auto& [name, entry] : file.entries()) {
      all.push_back({.name = name, .file = file.path().filename().string(), .entry = &entry});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Located& a, const Located& b) { return a.name < b.name; });
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i].name == all[i - 1].name) {
      problems_.push_back(fmt::format("{}: in {} and again in {}", all[i].name, all[i - 1].file, all[i].file));
    }
  }
  compare_with_index(all);
  join_pairs(std::move(all));
  require_plausible(options_, std::ssize(tensors_), config);
}

void ReleasedDirectory::open_files() {
  if (fs::exists(path_ / kReleasedSingle)) {
    files_.emplace_back(path_ / kReleasedSingle);
    return;
  }
  if (!fs::exists(path_ / kReleasedIndex)) {
    throw ConversionError("{} holds neither {} nor {}", path_.string(), kReleasedSingle, kReleasedIndex);
  }
  std::map<std::string, int> names;
  for (const auto& [tensor, file] : read_index(path_ / kReleasedIndex)) {
    if (file.empty() || file.find('/') != std::string::npos) {
      throw ConversionError("{}: \"{}\" is no file of the directory", (path_ / kReleasedIndex).string(), file);
    }
    ++names[file];
  }
  for (const auto& [file, count] : names) {
    files_.emplace_back(path_ / file);
  }
}

void ReleasedDirectory::compare_with_index(const std::vector<Located>& all) {
  if (fs::exists(path_ / kReleasedSingle)) {
    return;
  }
  const std::map<std::string, std::string> index = read_index(path_ / kReleasedIndex);
  std::map<std::string_view, std::string_view> present;
  for (const Located& tensor : all) {
    present.emplace(tensor.name, tensor.file);
    const auto listed_in = index.find(tensor.name);
    if (listed_in == index.end()) {
      problems_.push_back(fmt::format("{}: is in {}, but not in the index", tensor.name, tensor.file));
    } else if (listed_in->second != tensor.file) {
      problems_.push_back(fmt::format("{}: is in {}, the index says {}", tensor.name, tensor.file, listed_in->second));
    }
  }
  for (const auto& [name, file] : index) {
    if (!present.contains(name)) {
      problems_.push_back(fmt::format("{}: the index says {}, but no file has it", name, file));
    }
  }
}

void ReleasedDirectory::join_pairs(std::vector<Located> all) {
  std::map<std::string_view, const Located*> scales;
  for (const Located& tensor : all) {
    std::string_view base = tensor.name;
    if (strip_suffix(base, kScaleSuffix)) {
      scales.emplace(base, &tensor);
    }
  }
  for (const Located& tensor : all) {
    std::string_view base = tensor.name;
    if (strip_suffix(base, kScaleSuffix)) {
      continue;  // reported below when it stays alone
    }
    if (!strip_suffix(base, kPackedSuffix)) {
      tensors_.push_back({.name = tensor.name, .shape = tensor.entry->shape, .dtype = tensor.entry->dtype, .file = tensor.file, .data = tensor.entry});
      continue;
    }
    const auto scale = scales.find(base);
    if (scale == scales.end()) {
      problems_.push_back(fmt::format("{}: its scales {}{} are missing", tensor.name, base, kScaleSuffix));
      continue;
    }
    if (const std::string problem = pair_problem(*tensor.entry, *scale->second->entry); !problem.empty()) {
      problems_.push_back(fmt::format("{}: {}", tensor.name, problem));
    } else {
      std::vector<int64_t> shape = tensor.entry->shape;
      shape.back() *= 2;
      tensors_.push_back({.name = std::string(base), .shape = std::move(shape), .dtype = std::string(kMxfp4), .file = tensor.file,
                          .data = tensor.entry, .scale = scale->second->entry});
    }
    scales.erase(scale);
  }
  for (const auto& [base, tensor] : scales) {
    problems_.push_back(fmt::format("{}: its codes {}{} are missing", tensor->name, base, kPackedSuffix));
  }
  std::stable_sort(tensors_.begin(), tensors_.end(), [](const ReleasedTensor& a, const ReleasedTensor& b) { return a.name < b.name; });
}

std::string listed(std::span<const std::string> lines) {
  constexpr size_t kShown = 20;
  const auto shown = lines.first(std::min(lines.size(), kShown));
  return fmt::format("{}{}", fmt::join(shown, "\n  "), lines.size() > kShown ? fmt::format("\n  … and {} more", lines.size() - kShown) : "");
}

}  // namespace longhaul
