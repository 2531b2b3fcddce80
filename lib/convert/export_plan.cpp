// See export_plan.h.
#include "convert/export_plan.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "convert/import_model.h"
#include "convert/model_recipe.h"
#include "convert/passthrough.h"
#include "storage/safetensors.h"

namespace longhaul {

namespace {

bool is_float(DType dtype) { return dtype == DType::F32 || dtype == DType::F64 || dtype == DType::BF16; }

// The model's tensors of the checkpoint against those of its recipe.
std::vector<std::string> problems_of(const CheckpointReader& reader, const ModelOptions& model) {
  std::vector<std::string> problems;
  std::set<std::string, std::less<>> wanted;
  for (const ModelTensor& tensor : model_tensors(model)) {
    const std::string name = std::string(kModelGroup) + tensor.name;
    wanted.insert(name);
    const auto stored = reader.manifest().tensors.find(name);
    if (stored == reader.manifest().tensors.end()) {
      problems.push_back(fmt::format("{}: is missing", name));
    } else if (stored->second.spec.shape != tensor.shape || !is_float(stored->second.spec.dtype)) {
      problems.push_back(fmt::format("{}: is {}{}, wanted f32{}", name, to_string(stored->second.spec.dtype), stored->second.spec.shape.to_string(),
                                     tensor.shape.to_string()));
    }
  }
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    if (name.starts_with(kModelGroup) && !wanted.contains(name)) {
      problems.push_back(fmt::format("{}: belongs to nothing in the model", name));
    }
  }
  return problems;
}

std::optional<std::string> document_of(const CheckpointReader& reader, const char* name) {
  const auto found = reader.manifest().documents.find(name);
  return found == reader.manifest().documents.end() ? std::nullopt : std::optional(found->second);
}

// Tensors that are none of the model, in the type and shape in which they came.
std::vector<ExportTensor> passthrough_of(const CheckpointReader& reader) {
  std::map<std::string, ReleasedForm> forms;
  if (const auto text = document_of(reader, kPassthroughDocument)) {
    forms = forms_from_json(*text);
  }
  std::vector<ExportTensor> tensors;
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    if (!name.starts_with(kPassthroughGroup)) {
      continue;
    }
    SafetensorsDeclaration declaration{.name = name.substr(kPassthroughGroup.size()), .dtype = std::string(safetensors_dtype(tensor.spec.dtype)), .shape = {}};
    for (int d = 0; d < tensor.spec.shape.rank(); ++d) {
      declaration.shape.push_back(tensor.spec.shape[d]);
    }
    if (const auto form = forms.find(declaration.name); form != forms.end()) {
      declaration.dtype = form->second.dtype;
      declaration.shape = form->second.shape;
    }
    tensors.push_back({.stored = name, .spec = std::nullopt, .declarations = {std::move(declaration)}});
  }
  return tensors;
}

void require_same_model(const ExportSources& sources) {
  if (!sources.imported) {
    return;
  }
  const CheckpointReader& imported = *sources.imported;
  if (!document_of(imported, kConfigDocument)) {
    throw ConversionError("{} was not made by an import: it has no config.json and nothing that passes through", imported.path().string());
  }
  const auto weights_of = [](const CheckpointReader& reader) {
    std::map<std::string, Shape> weights;
    for (const auto& [name, tensor] : reader.manifest().tensors) {
      if (name.starts_with(kModelGroup)) {
        weights.emplace(name, tensor.spec.shape);
      }
    }
    return weights;
  };
  if (weights_of(sources.checkpoint) != weights_of(imported)) {
    throw ConversionError("{} and {} are of different models: what passes through belongs to the model that it was imported with",
                          sources.checkpoint.path().string(), imported.path().string());
  }
}

ShardedSize size_of_tensor(const ExportTensor& tensor) {
  ShardedSize size;
  for (const SafetensorsDeclaration& declaration : tensor.declarations) {
    int64_t bits = safetensors_bits(declaration.dtype);
    for (const int64_t n : declaration.shape) {
      bits *= n;
    }
    size.bytes += bits / 8;
    size.header_bytes += static_cast<int64_t>(declaration.name.size()) + 120;
  }
  return size;
}

}  // namespace

std::vector<SafetensorsDeclaration> ExportPlan::declarations_of(const Shard& shard) const {
  std::vector<SafetensorsDeclaration> all;
  for (int64_t i = shard.first; i < shard.last; ++i) {
    const auto& declarations = tensors[static_cast<size_t>(i)].declarations;
    all.insert(all.end(), declarations.begin(), declarations.end());
  }
  return all;
}

ExportPlan make_export_plan(const ExportSources& sources, const ReleasedTypes& types, int64_t max_shard_bytes) {
  const CheckpointReader& reader = sources.checkpoint;
  require_same_model(sources);
  ExportPlan plan{.model = model_options_from_recipe(reader.info().recipe, reader.path()), .types = types};
  if (const std::vector<std::string> problems = problems_of(reader, plan.model); !problems.empty()) {
    throw ConversionError("{}: {} tensors do not match the model of its recipe:\n  {}", reader.path().string(), problems.size(), listed(problems));
  }
  for (ReleasedSpec& spec : released_layout(plan.model, types)) {
    const std::string stored = std::string(kModelGroup) + spec.source;
    std::vector<SafetensorsDeclaration> declarations = spec.declarations();
    plan.tensors.push_back({.stored = stored, .spec = std::move(spec), .declarations = std::move(declarations)});
  }
  for (ExportTensor& tensor : passthrough_of(sources.passing())) {
    plan.tensors.push_back(std::move(tensor));
    plan.has_passthrough = true;
  }
  std::vector<ShardedSize> sizes;
  for (const ExportTensor& tensor : plan.tensors) {
    sizes.push_back(size_of_tensor(tensor));
  }
  plan.shards = cut_into_shards(sizes, max_shard_bytes);
  plan.imported_config = document_of(sources.passing(), kConfigDocument);
  return plan;
}

}  // namespace longhaul
