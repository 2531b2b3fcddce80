// That a comparison notices what is wrong: changed weights, swapped experts, a wrong bias, routes and gradients that are
// not there. And that it takes every form in which weights and references come. Agreement itself is in tests/golden.
#include "convert/compare.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "convert/convert_test_support.h"

namespace longhaul {
namespace {

using namespace convert_test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

constexpr double kTolerance = 1e-9;
const std::string kExperts = "model.layers.2.block_sparse_moe.experts.";
const std::string kBias = "model.layers.3.block_sparse_moe.gate.e_score_correction_bias";

// A copy of a golden model, to be changed.
struct Copy {
  TemporaryDirectory folder{TemporaryDirectory::fast_parent()};

  Copy() {
    for (const char* name : {"config.json", "model.safetensors", "reference.safetensors"}) {
      fs::copy_file(fs::path(LH_SOURCE_DIR) / "tests/golden/model_kimi_linear" / name, folder.path() / name);
    }
  }
  [[nodiscard]] fs::path file(const char* name) const { return folder.path() / name; }
  void change(const char* name, const std::function<void(FileTensors&)>& edit) const {
    FileTensors tensors = read_file(file(name));
    edit(tensors);
    write_file(file(name), tensors);
  }
  [[nodiscard]] CompareReport compare(CompareOptions::Routes routes = CompareOptions::Routes::Free) const {
    return longhaul::compare(ReleasedModel(folder.path()), file("reference.safetensors"),
                             {.dtype = DType::F64, .gradients = CompareOptions::Gradients::Compare, .routes = routes});
  }
};

void add_to(FileTensor& tensor, size_t index, double summand) {
  REQUIRE(tensor.dtype == "F64");
  double value = 0;
  std::memcpy(&value, tensor.data.data() + 8 * index, 8);
  value += summand;
  std::memcpy(tensor.data.data() + 8 * index, &value, 8);
}

TEST_CASE("a changed weight is noticed", "[convert]") {
  const Copy copy;
  CHECK(copy.compare().within(kTolerance));
  for (const char* name : {"model.layers.0.self_attn.dt_bias", "model.layers.3.self_attn.kv_a_layernorm.weight", "lm_head.weight"}) {
    INFO(name);
    copy.change("model.safetensors", [&](FileTensors& tensors) { add_to(tensors.at(name), 1, 1e-4); });
    const CompareReport report = copy.compare();
    CHECK_FALSE(report.within(kTolerance));
    CHECK(report.logits.relative_l2 > kTolerance);
    CHECK_THAT(report.text(kTolerance), ContainsSubstring("BEYOND"));
    copy.change("model.safetensors", [&](FileTensors& tensors) { add_to(tensors.at(name), 1, -1e-4); });
  }
  CHECK(copy.compare().within(kTolerance));
}

TEST_CASE("swapped experts are noticed", "[convert]") {
  const Copy copy;
  copy.change("model.safetensors", [](FileTensors& tensors) {
    for (const char* matrix : {"w1", "w2", "w3"}) {
      std::swap(tensors.at(kExperts + "0." + matrix + ".weight"), tensors.at(kExperts + "1." + matrix + ".weight"));
    }
  });
  const CompareReport report = copy.compare();
  CHECK_FALSE(report.within(1e-2));
  CHECK(report.logits.relative_l2 > 1e-3);
}

TEST_CASE("a wrong selection bias shows in the routes, and forced routes take it away", "[convert]") {
  const Copy copy;
  copy.change("model.safetensors", [](FileTensors& tensors) { add_to(tensors.at(kBias), 0, 1.0); });
  const CompareReport free = copy.compare();
  CHECK(free.routes_equal < free.routes_total);
  CHECK_FALSE(free.within(kTolerance));
  const CompareReport forced = copy.compare(CompareOptions::Routes::Forced);
  CHECK(forced.routes_equal == forced.routes_total);
  CHECK(forced.within(kTolerance));
}

TEST_CASE("routes, loss and logits count one by one", "[convert]") {
  const Copy copy;
  const FileTensors good = read_file(copy.file("reference.safetensors"));
  const auto with = [&](const std::function<void(FileTensors&)>& edit) {
    FileTensors tensors = good;
    edit(tensors);
    write_file(copy.file("reference.safetensors"), tensors);
    return copy.compare();
  };
  CHECK_FALSE(with([](FileTensors& t) { add_to(t.at("loss"), 0, 1e-6); }).within(kTolerance));
  CHECK_FALSE(with([](FileTensors& t) { add_to(t.at("logits"), 5, 1e-6); }).within(kTolerance));
  CHECK_FALSE(with([](FileTensors& t) { add_to(t.at("logits"), 5, NAN); }).within(1e9));
  const CompareReport one_route = with([](FileTensors& t) {
    int32_t& expert = *reinterpret_cast<int32_t*>(t.at("routes.4").data.data());
    expert = 99;
  });
  CHECK(one_route.routes_equal == one_route.routes_total - 1);
  CHECK_FALSE(one_route.within(kTolerance));
}

TEST_CASE("gradients that only one side has are named", "[convert]") {
  const Copy copy;
  const FileTensors good = read_file(copy.file("reference.safetensors"));
  const auto unmatched_with = [&](const std::function<void(FileTensors&)>& edit) {
    FileTensors tensors = good;
    edit(tensors);
    write_file(copy.file("reference.safetensors"), tensors);
    const CompareReport report = copy.compare();
    CHECK(report.within(kTolerance) == report.unmatched.empty());
    return fmt::format("{}", fmt::join(report.unmatched, "; "));
  };
  CHECK(unmatched_with([](FileTensors&) {}).empty());
  CHECK_THAT(unmatched_with([](FileTensors& t) { t.erase("grad.model.norm.weight"); }),
             ContainsSubstring("model.norm.weight (not in the reference)"));
  CHECK_THAT(unmatched_with([](FileTensors& t) { t.erase("grad." + kExperts + "0.w1.weight"); }),
             ContainsSubstring("experts.w1.weight (not in the reference)"));
  CHECK_THAT(unmatched_with([](FileTensors& t) { t["grad.model.layers.1.strange.weight"] = {"F64", {1}, std::vector<std::byte>(8)}; }),
             ContainsSubstring("model.layers.1.strange.weight (no such parameter)"));
  CHECK_THAT(unmatched_with([](FileTensors& t) {
               t["grad.model.layers.77.input_layernorm.weight"] = {"F64", {18}, std::vector<std::byte>(144)};
             }),
             ContainsSubstring("belongs to nothing"));
}

TEST_CASE("what a reference leaves out is not compared", "[convert]") {
  const Copy copy;
  copy.change("reference.safetensors", [](FileTensors& tensors) {
    std::erase_if(tensors, [](const auto& entry) {
      return entry.first == "loss" || entry.first == "logits" || entry.first.starts_with("routes.") || entry.first.starts_with("grad.");
    });
  });
  const CompareReport report = compare(ReleasedModel(copy.folder.path()), copy.file("reference.safetensors"), {.dtype = DType::F64});
  CHECK(report.within(kTolerance));
  CHECK(report.loss > 0);
  CHECK_FALSE(report.reference_loss.has_value());
  CHECK_THAT(report.text(kTolerance), ContainsSubstring("not recorded"));
  copy.change("reference.safetensors", [](FileTensors& tensors) { tensors.erase("input_ids"); });
  CHECK_THROWS_MATCHES(copy.compare(), ConversionError, MessageMatches(ContainsSubstring("input_ids")));
}

TEST_CASE("without boundaries every row is a document", "[convert]") {
  const Copy copy;
  const auto with_rows = [&](const std::vector<int32_t>& bounds, const std::vector<int64_t>& shape) {
    copy.change("reference.safetensors", [&](FileTensors& tensors) {
      std::erase_if(tensors, [](const auto& entry) { return entry.first != "input_ids" && entry.first != "targets"; });
      std::vector<std::byte> ids(4 * 12), targets(4 * 12);  // the first twelve tokens
      std::copy_n(tensors.at("input_ids").data.begin(), ids.size(), ids.begin());
      std::copy_n(tensors.at("targets").data.begin(), targets.size(), targets.begin());
      tensors["input_ids"] = {"I32", shape, ids};
      tensors["targets"] = {"I32", shape, targets};
      if (!bounds.empty()) {
        const auto bytes = std::as_bytes(std::span(bounds));
        tensors["cu_seqlens"] = {"I32", {static_cast<int64_t>(bounds.size())}, {bytes.begin(), bytes.end()}};
      }
    });
    return compare(ReleasedModel(copy.folder.path()), copy.file("reference.safetensors"), {.dtype = DType::F64}).loss;
  };
  CHECK(with_rows({}, {3, 4}) == with_rows({0, 4, 8, 12}, {1, 12}));
  CHECK(with_rows({}, {1, 12}) == with_rows({0, 12}, {1, 12}));
  CHECK(with_rows({}, {12}) == with_rows({0, 12}, {1, 12}));
  CHECK(with_rows({}, {3, 4}) != with_rows({}, {1, 12}));
  CHECK_THROWS_MATCHES(with_rows({0, 11}, {1, 12}), ConversionError, MessageMatches(ContainsSubstring("do not belong together")));
  CHECK_THROWS_MATCHES(with_rows({0, 8, 4, 12}, {1, 12}), ConversionError, MessageMatches(ContainsSubstring("do not belong together")));
}

// The weights in another type, and the same numbers in double: both must give the same loss.
void check_type(const char* dtype, size_t bytes, const std::function<double(double, std::byte*)>& round) {
  INFO(dtype);
  const Copy narrow, wide;
  narrow.change("model.safetensors", [&](FileTensors& tensors) {
    FileTensors exact = tensors;
    for (auto& [name, tensor] : tensors) {
      const size_t count = tensor.data.size() / 8;
      std::vector<std::byte> data(bytes * count);
      for (size_t i = 0; i < count; ++i) {
        double value = 0;
        std::memcpy(&value, tensor.data.data() + 8 * i, 8);
        const double rounded = round(value, data.data() + bytes * i);
        std::memcpy(exact.at(name).data.data() + 8 * i, &rounded, 8);
      }
      tensor = {dtype, tensor.shape, data};
    }
    write_file(wide.file("model.safetensors"), exact);
  });
  const CompareReport a = narrow.compare(CompareOptions::Routes::Forced), b = wide.compare(CompareOptions::Routes::Forced);
  CHECK(a.loss == b.loss);
  CHECK(a.logits.relative_l2 == b.logits.relative_l2);
  CHECK(a.logits.relative_l2 < 0.2);  // still this model
}

TEST_CASE("weights come in every floating-point type", "[convert]") {
  check_type("BF16", 2, [](double value, std::byte* out) {
    const BFloat16 rounded(static_cast<float>(value));
    std::memcpy(out, &rounded, 2);
    return static_cast<double>(static_cast<float>(rounded));
  });
  check_type("F16", 2, [](double value, std::byte* out) {  // cut off instead of rounded; zero below the normal range
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    const auto exponent = static_cast<int32_t>((bits >> 23) & 0xff) - 112;
    const auto half =
        static_cast<uint16_t>(exponent <= 0 ? 0 : (bits >> 16 & 0x8000) | static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 0x3ff));
    std::memcpy(out, &half, 2);
    return exponent <= 0 ? 0.0 : static_cast<double>(std::bit_cast<float>(bits & ~0x1fffu));
  });
  check_type("F32", 4, [](double value, std::byte* out) {
    const auto rounded = static_cast<float>(value);
    std::memcpy(out, &rounded, 4);
    return static_cast<double>(rounded);
  });
}

TEST_CASE("weights come in shards with an index", "[convert]") {
  const Copy copy;
  const FileTensors all = read_file(copy.file("model.safetensors"));
  std::vector<FileTensors> shards(3);
  nlohmann::json map;
  size_t next = 0;
  for (const auto& [name, tensor] : all) {
    const size_t shard = next++ % shards.size();
    shards[shard][name] = tensor;
    map[name] = fmt::format("model-{:05}-of-00003.safetensors", shard + 1);
  }
  for (size_t s = 0; s < shards.size(); ++s) {
    write_file(copy.folder.path() / fmt::format("model-{:05}-of-00003.safetensors", s + 1), shards[s]);
  }
  fs::remove(copy.file("model.safetensors"));
  CHECK_THROWS_AS(copy.compare(), ConversionError);
  std::ofstream(copy.file("model.safetensors.index.json")) << nlohmann::json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}};
  CHECK(copy.compare().within(kTolerance));
  fs::remove(copy.folder.path() / "model-00002-of-00003.safetensors");
  CHECK_THROWS_MATCHES(copy.compare(), ConversionError, MessageMatches(ContainsSubstring("model-00002-of-00003")));
}

TEST_CASE("a model that lacks, adds or turns a tensor is not compared", "[convert]") {
  const Copy copy;
  copy.change("model.safetensors", [](FileTensors& tensors) {
    tensors.erase("model.layers.1.self_attn.q_proj.weight");
    tensors.erase(kExperts + "3.w2.weight");
    tensors["model.layers.1.self_attn.strange.weight"] = {"F64", {1}, std::vector<std::byte>(8)};
    FileTensor& turned = tensors.at("model.layers.3.self_attn.o_proj.weight");
    std::swap(turned.shape[0], turned.shape[1]);
    FileTensor& norm = tensors.at("model.norm.weight");
    norm.shape = {17};
    norm.data.resize(8 * 17);
    tensors.erase(kBias);
  });
  CHECK_THROWS_MATCHES(copy.compare(), ConversionError,
                       MessageMatches(ContainsSubstring("layers.1.self_attn.q_proj.weight") && ContainsSubstring("experts.3.w2.weight") &&
                                      ContainsSubstring("strange") && ContainsSubstring("layers.3.self_attn.o_proj.weight") &&
                                      ContainsSubstring("model.norm.weight") && ContainsSubstring("e_score_correction_bias")));
}

}  // namespace
}  // namespace longhaul
