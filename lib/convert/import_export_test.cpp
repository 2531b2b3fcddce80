#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "convert/convert_test_support.h"
#include "convert/diff.h"
#include "convert/inspect.h"
#include "convert/released_directory.h"
#include "convert/released_weights.h"
#include "convert/shards.h"
#include "convert/verify.h"

namespace longhaul {
namespace {

using namespace convert_test;
using Catch::Matchers::ContainsSubstring;

constexpr ReleasedTypes kF32{.weights = ReleasedType::F32, .experts = ReleasedType::F32};
constexpr ReleasedTypes kBf16{};
constexpr ReleasedTypes kMxfp4Experts{.weights = ReleasedType::BF16, .experts = ReleasedType::Mxfp4};

float rounded(float value) { return static_cast<float>(BFloat16(value)); }

bool is_f32_in_k3(const std::string& name) {
  for (const char* end : {"A_log", "dt_bias", "_conv1d.weight", "o_norm.weight", "e_score_correction_bias"}) {
    if (name.ends_with(end)) {
      return true;
    }
  }
  return false;
}

// Exports and imports again; the new checkpoint.
fs::path pass(const fs::path& checkpoint, const std::string& name, const ReleasedTypes& types) {
  const fs::path folder = checkpoint.parent_path();
  (void)export_to(checkpoint, folder / (name + "_released"), types);
  (void)import_to(folder / (name + "_released"), folder / name);
  return folder / name;
}

}  // namespace

TEST_CASE("a model that is exported in f32 and imported is the same, bit for bit", "[convert]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  for (const ModelOptions& model : {tiny_k3(), tiny_kimi_linear()}) {
    const fs::path at = folder.path() / (model.attn_res_block_size ? "k3" : "kimi_linear");
    fs::create_directories(at);
    write_random_checkpoint(at / "x", model, 1);
    const fs::path back = pass(at / "x", "back", kF32);
    CHECK(weights_of(back) == weights_of(at / "x"));
    const CheckpointReader reader(back);
    CHECK(reader.info().step == 0);
    CHECK(reader.info().recipe == model_recipe_text(model));
  }
}

TEST_CASE("in bf16 the first pass rounds once and the second changes nothing", "[convert]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  write_random_checkpoint(folder.path() / "x", tiny_k3(), 2);
  const fs::path first = pass(folder.path() / "x", "first", kBf16);
  auto wanted = weights_of(folder.path() / "x");
  for (auto& [name, values] : wanted) {
    for (float& value : values) {
      value = is_f32_in_k3(name) ? value : rounded(value);
    }
  }
  CHECK(weights_of(first) == wanted);
  CHECK(weights_of(pass(first, "second", kBf16)) == wanted);
  CHECK(text_of(folder.path() / "second_released/model.safetensors") == text_of(folder.path() / "first_released/model.safetensors"));
  CHECK(nlohmann::json::parse(text_of(folder.path() / "second_released/config.json")) ==
        nlohmann::json::parse(text_of(folder.path() / "first_released/config.json")));
}

TEST_CASE("in MXFP4 a second pass is exact, and only experts are quantised", "[convert]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  write_random_checkpoint(folder.path() / "x", tiny_k3(), 3);
  const fs::path first = pass(folder.path() / "x", "first", kMxfp4Experts);
  const auto once = weights_of(first);
  CHECK(weights_of(pass(first, "second", kMxfp4Experts)) == once);
  const auto original = weights_of(folder.path() / "x");
  for (const auto& [name, values] : original) {
    const bool is_expert = name.find(".experts.") != std::string::npos;
    double worst = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, static_cast<double>(std::abs(once.at(name)[i] - values[i])));
    }
    CAPTURE(name, worst);
    CHECK(worst < (is_expert ? 1.0 : 0.02));  // of normal numbers: half a step of 2 at the scale 1, half an ulp of bf16
    CHECK((worst > 0.05) == is_expert);
  }
  CHECK(inspect(folder.path() / "first_released", InspectFormat::Text).find("mxfp4") != std::string::npos);
}

TEST_CASE("the index of shards names what was written, where it is", "[convert]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  write_random_checkpoint(folder.path() / "x", tiny_k3(), 4);
  const ExportReport report = export_to(folder.path() / "x", folder.path() / "out", kMxfp4Experts, 8000);
  REQUIRE(report.shards > 5);
  const auto index = nlohmann::json::parse(text_of(folder.path() / "out/model.safetensors.index.json"));
  int64_t total = 0;
  std::map<std::string, std::string> found;
  for (int64_t shard = 0; shard < report.shards; ++shard) {
    const SafetensorsFile file(folder.path() / "out" / shard_name(shard, report.shards));
    CHECK(file.metadata().at("format") == "pt");
    int64_t bytes = 0;
    for (const auto& [name, entry] : file.entries()) {
      found[name] = shard_name(shard, report.shards);
      bytes += static_cast<int64_t>(entry.data.size());
    }
    CHECK((bytes <= 8000 || file.entries().size() <= 2));
    total += bytes;
  }
  CHECK(index.at("weight_map").get<std::map<std::string, std::string>>() == found);
  CHECK(index.at("metadata").at("total_size") == total);
  CHECK(report.tensors == std::ssize(found));
  (void)export_to(folder.path() / "x", folder.path() / "single", kMxfp4Experts);
  const auto a = open_tensor_source(folder.path() / "out");
  const auto b = open_tensor_source(folder.path() / "single");
  CHECK(diff_sources(*a, *b).within(0));
}

TEST_CASE("any number of layers in config.json is refused with a message", "[convert]") {
  for (const int64_t layers : {std::numeric_limits<int64_t>::max(), int64_t{1} << 40, int64_t{1000}, int64_t{0}, int64_t{-1}}) {
    CAPTURE(layers);
    const TemporaryDirectory folder;
    const fs::path released = released_directory(folder.path(), tiny_k3());
    auto config = nlohmann::json::parse(text_of(released / "config.json"));
    config.at("text_config").at("num_hidden_layers") = layers;
    std::ofstream(released / "config.json") << config;
    CHECK_THROWS_AS(ReleasedDirectory(released), ConversionError);
  }
}

TEST_CASE("tensors of a vision tower and unknown keys of config.json come back as they came", "[convert]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  const fs::path released = released_directory(folder.path(), tiny_k3(), kBf16);
  const auto some = [](size_t n) {
    std::vector<std::byte> data(n);
    for (size_t i = 0; i < n; ++i) {
      data[i] = static_cast<std::byte>(i * 37 + 11);  // also NaN with payload
    }
    return data;
  };
  const FileTensors vision{{"vision_tower.patch_embed.proj.weight", {"BF16", {4, 3, 2, 2}, some(96)}},
                           {"vision_tower.rank_five", {"F32", {1, 2, 1, 3, 1}, some(24)}},
                           {"vision_tower.half", {"F16", {5}, some(10)}},
                           {"vision_tower.empty", {"F32", {0, 4}, {}}},
                           {"mm_projector.proj.0.weight", {"U8", {7}, some(7)}},
                           {"mm_projector.scale", {"F32", {}, some(4)}}};
  change_file(released, [&](FileTensors& tensors) { tensors.insert(vision.begin(), vision.end()); });
  auto config = nlohmann::json::parse(text_of(released / "config.json"));
  config["vision_config"] = {{"vt_layers", 27}};
  config["eos_token_id"] = 5;
  config["text_config"]["something_new"] = "kept";
  std::ofstream(released / "config.json") << config;

  const ImportReport report = import_to(released, folder.path() / "imported");
  CHECK(report.passthrough == 6);
  (void)export_to(folder.path() / "imported", folder.path() / "again", kBf16);
  const FileTensors before = read_file(released / "model.safetensors");
  const FileTensors after = read_file(folder.path() / "again/model.safetensors");
  CHECK(after.size() == before.size());
  for (const auto& [name, tensor] : before) {
    CAPTURE(name);
    REQUIRE(after.contains(name));
    CHECK(after.at(name).dtype == tensor.dtype);
    CHECK(after.at(name).shape == tensor.shape);
    CHECK(after.at(name).data == tensor.data);
  }
  CHECK(nlohmann::json::parse(text_of(folder.path() / "again/config.json")) == config);

  // A run that started from the import has other weights and nothing else; beside the import it gets the rest back.
  write_random_checkpoint(folder.path() / "trained", tiny_k3(), 9);
  SelfHostComm comm;
  (void)export_model(comm, {.from = folder.path() / "trained", .to = folder.path() / "whole", .imported = folder.path() / "imported", .types = kBf16});
  (void)export_to(folder.path() / "trained", folder.path() / "alone", kBf16);
  FileTensors wanted = read_file(folder.path() / "alone/model.safetensors");
  wanted.insert(vision.begin(), vision.end());
  const FileTensors whole = read_file(folder.path() / "whole/model.safetensors");
  CHECK(whole.size() == wanted.size());
  for (const auto& [name, tensor] : wanted) {
    CAPTURE(name);
    REQUIRE(whole.contains(name));
    CHECK(whole.at(name).data == tensor.data);
  }
  CHECK(nlohmann::json::parse(text_of(folder.path() / "whole/config.json")) == config);
  const auto export_beside = [&](const char* from, const char* imported) {
    (void)export_model(comm, {.from = folder.path() / from, .to = folder.path() / "refused", .imported = folder.path() / imported, .types = kBf16});
  };
  CHECK_THROWS_WITH(export_beside("imported", "trained"), ContainsSubstring("was not made by an import"));
  write_random_checkpoint(folder.path() / "other", tiny_kimi_linear(), 9);
  CHECK_THROWS_WITH(export_beside("other", "imported"), ContainsSubstring("different models"));
  CHECK_FALSE(fs::exists(folder.path() / "refused"));
}

TEST_CASE("an interrupted export leaves nothing that looks complete", "[convert]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  write_random_checkpoint(folder.path() / "x", tiny_k3(), 6);
  SelfHostComm comm;
  int64_t left = 40;  // blocks
  ExportRequest request{.from = folder.path() / "x", .to = folder.path() / "out", .types = kBf16, .max_shard_bytes = 2000};
  request.fault = [&](int64_t) {
    if (--left == 0) {
      throw ConversionError("the disk is full");
    }
  };
  CHECK_THROWS_WITH(export_model(comm, request), ContainsSubstring("the disk is full"));
  CHECK_FALSE(fs::exists(folder.path() / "out"));
  CHECK_FALSE(fs::exists(folder.path() / ".out.inprogress"));
  fs::create_directories(folder.path() / ".out.inprogress");  // of an export that was killed
  std::ofstream(folder.path() / ".out.inprogress/stray") << "x";
  request.fault = {};
  (void)export_model(comm, request);
  CHECK(fs::exists(folder.path() / "out/config.json"));
  CHECK_FALSE(fs::exists(folder.path() / "out/stray"));
  CHECK_THROWS_AS(export_model(comm, request), RecipeError);  // never replaces
  CHECK_THROWS_AS(import_to(folder.path() / "out", folder.path() / "x"), RecipeError);
}

TEST_CASE("a checkpoint that lacks a tensor of its recipe's model is not exported", "[convert]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  ModelOptions model = tiny_k3();
  write_random_checkpoint(folder.path() / "x", model, 7);
  SelfHostComm comm;
  model.num_experts = 4;
  model.kv_lora_rank = 6;
  const Tensor one = Tensor::zeros(DType::F32, {19, 12});
  CheckpointContent content{.info = {.recipe = model_recipe_text(model)},
                            .pieces = {whole_piece("model/lm_head.weight", one), whole_piece("model/stray", one)}};
  (void)write_checkpoint(comm, folder.path() / "y", content);
  CHECK_THROWS_WITH(export_to(folder.path() / "y", folder.path() / "out"),
                    ContainsSubstring("model/model.embed_tokens.weight: is missing") && ContainsSubstring("more"));
  content.info.recipe = "run: {}\n";
  (void)write_checkpoint(comm, folder.path() / "z", content);
  CHECK_THROWS_AS(export_to(folder.path() / "z", folder.path() / "out"), CheckpointError);
  CHECK_FALSE(fs::exists(folder.path() / "out"));
}

TEST_CASE("diff finds a single changed value, and what only one side has", "[convert]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  const fs::path released = released_directory(folder.path(), tiny_k3());
  const auto compare = [&](const fs::path& a, const fs::path& b) {
    const auto source_a = open_tensor_source(a);
    const auto source_b = open_tensor_source(b);
    return diff_sources(*source_a, *source_b);
  };
  const fs::path checkpoint = folder.path() / "checkpoint";
  CHECK(compare(checkpoint, checkpoint).within(0));
  const DiffReport same = compare(checkpoint, released);
  CHECK(same.within(0));
  CHECK(same.compared == std::ssize(model_tensors(tiny_k3())));
  CHECK(same.left_out == std::vector<std::string>{"1 tensors under optimizer/"});

  const std::string expert = "language_model.model.layers.2.block_sparse_moe.experts.1.w2.weight";
  change_file(released, [&](FileTensors& tensors) { std::memset(tensors.at(expert).data.data() + 4 * (3 * 64 + 9), 0, 4); });
  const DiffReport changed = compare(checkpoint, released);
  REQUIRE(changed.different.size() == 1);
  CHECK(changed.different[0].name == "model/model.layers.2.block_sparse_moe.experts.w2.weight");
  CHECK(changed.different[0].where == "[1, 3, 9]");
  CHECK_FALSE(changed.within(0));
  CHECK(changed.within(2));
  CHECK_THAT(changed.text(0), ContainsSubstring("DIFFERENT"));

  (void)import_to(released, folder.path() / "imported");
  const DiffReport checkpoints = compare(checkpoint, folder.path() / "imported");
  CHECK(checkpoints.only_a == std::vector<std::string>{"optimizer/m/something"});
  CHECK_FALSE(checkpoints.within(10));
}

TEST_CASE("verify names what is damaged", "[convert]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  const fs::path released = released_directory(folder.path(), tiny_k3());
  SelfHostComm comm;
  CHECK_THAT(verify(comm, folder.path() / "checkpoint"), ContainsSubstring("all as saved"));
  CHECK_THAT(verify(comm, released), ContainsSubstring("exactly the model"));
  const fs::path file = folder.path() / "checkpoint/rank_00000.h5";
  const Manifest manifest = CheckpointReader(folder.path() / "checkpoint").manifest();
  const std::string name = "model/model.layers.1.self_attn.o_proj.weight";
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(manifest.tensors.at(name).pieces[0].file_offset).put('\x7f');
  CHECK_THROWS_WITH(verify(comm, folder.path() / "checkpoint"), ContainsSubstring(name));
  CHECK_THROWS_AS(export_to(folder.path() / "checkpoint", folder.path() / "out"), CheckpointError);
  CHECK_THROWS_AS(verify(comm, folder.path()), CheckpointError);
}

TEST_CASE("inspect tells step, parameters and tensors", "[convert]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  const fs::path released = released_directory(folder.path(), tiny_k3());
  int64_t parameters = 0;
  for (const ModelTensor& tensor : model_tensors(tiny_k3())) {
    parameters += tensor.name.ends_with("e_score_correction_bias") ? 0 : tensor.shape.numel();
  }
  const auto root = nlohmann::json::parse(inspect(folder.path() / "checkpoint", InspectFormat::Json));
  CHECK(root.at("step") == 7);
  CHECK(root.at("stage") == "8k");
  CHECK(root.at("tokens") == 700);
  CHECK(root.at("parameters") == parameters);
  CHECK(root.at("tensors").size() == model_tensors(tiny_k3()).size() + 1);
  const std::string text = inspect(released, InspectFormat::Text);
  CHECK_THAT(text, ContainsSubstring("kimi_k3") && ContainsSubstring("model.layers.*.block_sparse_moe.experts.*.w1.weight"));
}

}  // namespace longhaul
