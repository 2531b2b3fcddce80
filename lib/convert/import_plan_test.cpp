#include "convert/import_plan.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "convert/convert_test_support.h"
#include "convert/diff.h"

namespace longhaul {
namespace {

using namespace convert_test;
using Catch::Matchers::ContainsSubstring;

const std::string kLayer = "language_model.model.layers.1.";

// What an import of a changed directory says; nothing must be left at the target.
std::string refusal(const std::function<void(FileTensors&)>& change, ReleasedTypes types = {}) {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  const fs::path released = released_directory(folder.path(), tiny_k3(), types);
  change_file(released, change);
  std::string message = "accepted";
  try {
    (void)import_to(released, folder.path() / "out");
  } catch (const ConversionError& error) {
    message = error.what();
  }
  CHECK(fs::exists(folder.path() / "out") == (message == "accepted"));
  CHECK_FALSE(fs::exists(folder.path() / ".out.inprogress"));
  return message;
}

constexpr ReleasedTypes kMxfp4Experts{.weights = ReleasedType::BF16, .experts = ReleasedType::Mxfp4};

}  // namespace

TEST_CASE("every tensor that does not match is listed, and nothing is written", "[convert]") {
  const std::string message = refusal([](FileTensors& tensors) {
    tensors.erase(kLayer + "self_attn.q_proj.weight");
    tensors.erase(kLayer + "block_sparse_moe.experts.2.w3.weight");
    tensors[kLayer + "self_attn.strange.weight"] = {"BF16", {2}, std::vector<std::byte>(4)};
    FileTensor& turned = tensors.at(kLayer + "self_attn.b_proj.weight");
    std::swap(turned.shape[0], turned.shape[1]);
    tensors.at(kLayer + "block_sparse_moe.gate.weight").dtype = "I16";
    tensors.at(kLayer + "block_sparse_moe.experts.0.w1.weight").shape = {32, 64};
  });
  CHECK_THAT(message, ContainsSubstring("6 tensors do not match"));
  CHECK_THAT(message, ContainsSubstring("model.layers.1.self_attn.q_proj.weight: is missing"));
  CHECK_THAT(message, ContainsSubstring("block_sparse_moe.experts.2.w3.weight: is missing"));
  CHECK_THAT(message, ContainsSubstring("self_attn.strange.weight: the model has no"));
  CHECK_THAT(message, ContainsSubstring("b_proj.weight: has the shape [12, 3], wanted [3, 12]"));
  CHECK_THAT(message, ContainsSubstring("gate.weight: is of type I16"));
  CHECK_THAT(message, ContainsSubstring("experts.0.w1.weight: has the shape [32, 64], wanted [64, 32]"));
}

TEST_CASE("A_log may be padded with zeros and with nothing else", "[convert]") {
  const std::string a_log = kLayer + "self_attn.A_log";
  CHECK(refusal([](FileTensors&) {}) == "accepted");
  CHECK(refusal([&](FileTensors& tensors) {
          tensors.at(a_log).shape = {3};
          tensors.at(a_log).data.resize(12);
        }) == "accepted");
  CHECK_THAT(refusal([&](FileTensors& tensors) { tensors.at(a_log).data[4 * 77 + 3] = std::byte{0x3f}; }),
             ContainsSubstring("A_log: has 128 values, of which the model uses 3"));
  CHECK_THAT(refusal([&](FileTensors& tensors) {
               tensors.at(a_log).shape = {2};
               tensors.at(a_log).data.resize(8);
             }),
             ContainsSubstring("A_log: has the shape [2], wanted [3]"));
}

TEST_CASE("two names for the same parameter are refused", "[convert]") {
  CHECK_THAT(refusal([](FileTensors& tensors) {
               const std::string layer = "language_model.model.layers.0.";
               tensors[layer + "block_sparse_moe.up_proj.weight"] = tensors.at(layer + "mlp.up_proj.weight");
             }),
             ContainsSubstring("that another tensor gives, too"));
}

TEST_CASE("codes and scales must come in pairs that fit", "[convert]") {
  const std::string w1 = kLayer + "block_sparse_moe.experts.1.w1.weight";
  CHECK(refusal([](FileTensors&) {}, kMxfp4Experts) == "accepted");
  CHECK_THAT(refusal([&](FileTensors& t) { t.erase(w1 + "_scale"); }, kMxfp4Experts), ContainsSubstring("its scales"));
  CHECK_THAT(refusal([&](FileTensors& t) { t.erase(w1 + "_packed"); }, kMxfp4Experts), ContainsSubstring("its codes"));
  CHECK_THAT(refusal([&](FileTensors& t) { t.at(w1 + "_scale").shape = {1, 64}; }, kMxfp4Experts), ContainsSubstring("must be [64, 1]"));
  CHECK_THAT(refusal([&](FileTensors& t) { t.at(w1 + "_packed").dtype = "I8"; }, kMxfp4Experts), ContainsSubstring("must be U8"));
  CHECK_THAT(refusal([&](FileTensors& t) { t.at(w1 + "_scale").data[5] = std::byte{255}; }, kMxfp4Experts),
             ContainsSubstring("not a number") && ContainsSubstring("experts.1.w1.weight"));
  CHECK_THAT(refusal([&](FileTensors& t) {
               t[kLayer + "self_attn.o_proj.weight_packed"] = {"U8", {12, 16}, std::vector<std::byte>(192)};
               t[kLayer + "self_attn.o_proj.weight_scale"] = {"U8", {12, 1}, std::vector<std::byte>(12)};
               t.erase(kLayer + "self_attn.o_proj.weight");
             }),
             ContainsSubstring("only routed experts"));
}

TEST_CASE("an index that does not agree with its files is refused", "[convert]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  write_random_checkpoint(folder.path() / "x", tiny_k3(), 1);
  (void)export_to(folder.path() / "x", folder.path() / "sharded", {}, 8000);
  const fs::path index = folder.path() / "sharded/model.safetensors.index.json";
  const std::string good = text_of(index);
  const auto message_with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    std::ofstream(index) << text;
    try {
      const ReleasedDirectory directory(folder.path() / "sharded");
      const ImportPlan plan(directory);
    } catch (const ConversionError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(message_with("x", "x") == "accepted");
  CHECK_THAT(message_with("language_model.model.norm.weight", "language_model.model.norm.weights"),
             ContainsSubstring("not in the index") && ContainsSubstring("no file has it"));
  CHECK_THAT(message_with("model-00001-of", "../model-00001-of"), ContainsSubstring("is no file of the directory"));
  CHECK_THAT(message_with("model-00001-of", "model-00002-of"), ContainsSubstring("the index says model-00002"));
  CHECK_THAT(message_with("weight_map", "weight_mop"), ContainsSubstring("not an index"));
}

TEST_CASE("the names inside transformers are understood, merged experts and all", "[convert]") {
  // What the files of other programs hold is in tests/golden; here the merged forms are built from a release.
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  const fs::path released = released_directory(folder.path(), tiny_kimi_linear());
  change_file(released, [](FileTensors& tensors) {
    for (const int layer : {1, 2, 3}) {
      const std::string experts = fmt::format("model.layers.{}.block_sparse_moe.experts.", layer);
      FileTensor gate_up{"F32", {3, 128, 12}, {}};
      FileTensor down{"F32", {3, 12, 64}, {}};
      for (int e = 0; e < 3; ++e) {
        for (const auto& [which, into] : {std::pair{"w1", &gate_up}, std::pair{"w3", &gate_up}, std::pair{"w2", &down}}) {
          const auto node = tensors.extract(fmt::format("{}{}.{}.weight", experts, e, which));
          into->data.insert(into->data.end(), node.mapped().data.begin(), node.mapped().data.end());
        }
      }
      tensors[experts + "gate_up_proj"] = gate_up;
      tensors[experts + "down_proj"] = down;
    }
    for (const int layer : {0, 1, 2}) {
      const std::string attention = fmt::format("model.layers.{}.self_attn.", layer);
      FileTensor conv{"F32", {63, 1, 4}, {}};
      for (const char* which : {"q", "k", "v"}) {
        const auto node = tensors.extract(fmt::format("{}{}_conv1d.weight", attention, which));
        conv.data.insert(conv.data.end(), node.mapped().data.begin(), node.mapped().data.end());
      }
      tensors[attention + "conv1d.weight"] = conv;
    }
  });
  const auto a = open_tensor_source(folder.path() / "checkpoint");
  const auto b = open_tensor_source(released);
  CHECK(diff_sources(*a, *b).within(0));
  change_file(released, [](FileTensors& tensors) {
    tensors.at("model.layers.0.self_attn.conv1d.weight").shape = {4, 1, 63};
    tensors.at("model.layers.1.block_sparse_moe.experts.gate_up_proj").shape = {3, 12, 128};
  });
  CHECK_THROWS_WITH(open_tensor_source(released), ContainsSubstring("conv1d.weight: has the shape [4, 1, 63], wanted [63, 1, 4]") &&
                                                      ContainsSubstring("gate_up_proj: has the shape [3, 12, 128], wanted [3, 128, 12]"));
}

}  // namespace longhaul
