// Tiny models, checkpoints and released directories for the tests of this folder.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/philox.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "comm/self_host_comm.h"
#include "convert/export_model.h"
#include "convert/import_model.h"
#include "convert/model_recipe.h"
#include "convert/model_tensors.h"
#include "storage/safetensors.h"
#include "storage/safetensors_writer.h"
#include "storage/temporary_directory.h"
#include "tensor/tensor.h"

namespace longhaul::convert_test {

namespace fs = std::filesystem;

// Every kind of tensor of Kimi K3, all widths different where they can be; experts can be cut into MXFP4 groups.
inline ModelOptions tiny_k3() {
  ModelOptions m;
  m.vocab_size = 19;
  m.hidden_size = 12;
  m.num_hidden_layers = 4;
  m.num_attention_heads = 2;
  m.q_lora_rank = 6;
  m.kv_lora_rank = 5;
  m.qk_nope_head_dim = 3;
  m.qk_rope_head_dim = 2;
  m.v_head_dim = 4;
  m.linear_attn_config = {.num_heads = 3, .head_dim = 7, .kda_layers = {1, 2, 3}, .full_attn_layers = {4}};
  m.attn_res_block_size = 2;
  m.intermediate_size = 10;
  m.num_experts = 3;
  m.num_experts_per_token = 2;
  m.num_shared_experts = 2;
  m.moe_intermediate_size = 64;
  m.routed_expert_hidden_size = 32;
  return m;
}

inline ModelOptions tiny_kimi_linear() {
  ModelOptions m = tiny_k3();
  m.q_lora_rank = std::nullopt;
  m.mla_use_output_gate = false;
  m.linear_attn_config.gate_lower_bound = std::nullopt;
  m.linear_attn_config.use_full_rank_gate = false;
  m.attn_res_block_size = std::nullopt;
  m.routed_expert_hidden_size = std::nullopt;
  m.latent_moe_use_norm = false;
  m.hidden_act = HiddenAct::Silu;
  m.routed_scaling_factor = 2.446;
  return m;
}

// Random weights as training would save them, with optimizer state beside.
inline void write_random_checkpoint(const fs::path& path, const ModelOptions& model, uint64_t seed, Compression compression = Compression::None) {
  std::vector<Tensor> owners;
  CheckpointContent content;
  content.info = {.step = 7, .stage = "8k", .tokens = 700, .recipe = model_recipe_text(model)};
  for (const ModelTensor& tensor : model_tensors(model)) {
    owners.emplace_back(DType::F32, tensor.shape);
    const RandomStream random{.seed = seed, .stream = stream_id(tensor.name.c_str())};
    for (int64_t i = 0; i < tensor.shape.numel(); ++i) {
      owners.back().values<float>()[static_cast<size_t>(i)] = static_cast<float>(random.normal(static_cast<uint64_t>(i)));
    }
    content.pieces.push_back(whole_piece(std::string(kModelGroup) + tensor.name, owners.back()));
  }
  const Tensor moment = Tensor::zeros(DType::F32, {3});
  content.pieces.push_back(whole_piece("optimizer/m/something", moment));
  SelfHostComm comm;
  (void)write_checkpoint(comm, path, content, {.compression = compression});
}

// {name: values} of a checkpoint's model.
inline std::map<std::string, std::vector<float>> weights_of(const fs::path& checkpoint) {
  std::map<std::string, std::vector<float>> all;
  CheckpointReader reader(checkpoint);
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    if (!name.starts_with(kModelGroup)) {
      continue;
    }
    const Tensor values(tensor.spec);
    reader.read(name, std::vector<int64_t>(static_cast<size_t>(tensor.spec.shape.rank()), 0), values);
    all[name] = {values.values<float>().begin(), values.values<float>().end()};
  }
  return all;
}

inline ExportReport export_to(const fs::path& from, const fs::path& to, ReleasedTypes types = {}, int64_t max_shard_bytes = 5'000'000'000) {
  SelfHostComm comm;
  return export_model(comm, {.from = from, .to = to, .types = types, .max_shard_bytes = max_shard_bytes});
}

inline ImportReport import_to(const fs::path& from, const fs::path& to) {
  SelfHostComm comm;
  return import_model(comm, {.from = from, .to = to});
}

// One tensor of a file in memory, for a test to change.
struct FileTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
};
using FileTensors = std::map<std::string, FileTensor>;

inline FileTensors read_file(const fs::path& path) {
  FileTensors all;
  const SafetensorsFile file(path);
  for (const auto& [name, entry] : file.entries()) {
    all[name] = {.dtype = entry.dtype, .shape = entry.shape, .data = {entry.data.begin(), entry.data.end()}};
  }
  return all;
}

inline void write_file(const fs::path& path, const FileTensors& tensors) {
  std::vector<SafetensorsDeclaration> declarations;
  for (const auto& [name, tensor] : tensors) {
    declarations.push_back({.name = name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  SafetensorsWriter writer(path, std::move(declarations));
  for (const auto& [name, tensor] : tensors) {
    writer.write(name, tensor.data);
  }
  writer.finish();
}

inline std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A released directory of random weights: DIR/released, made from DIR/checkpoint.
inline fs::path released_directory(const fs::path& directory, const ModelOptions& model, ReleasedTypes types = {.weights = ReleasedType::F32, .experts = ReleasedType::F32}) {
  write_random_checkpoint(directory / "checkpoint", model, 5);
  (void)export_to(directory / "checkpoint", directory / "released", types);
  return directory / "released";
}

// Changes the tensors of DIR/model.safetensors.
inline void change_file(const fs::path& directory, const std::function<void(FileTensors&)>& change) {
  FileTensors tensors = read_file(directory / "model.safetensors");
  change(tensors);
  write_file(directory / "model.safetensors", tensors);
}

}  // namespace longhaul::convert_test
