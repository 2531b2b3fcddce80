// The manifest reads back what was written, and notices a change of any of its bytes.
#include "checkpoint/manifest.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace longhaul;
using Catch::Matchers::ContainsSubstring;

namespace {

Manifest example() {
  Manifest manifest;
  manifest.info = {.step = 100,
                   .stage = "64k \"long\"",
                   .tokens = int64_t{1} << 55,
                   .role = CheckpointRole::StageFinal,
                   .recipe = "run: {name: x}\n# ü\n",
                   .versions = R"({"hdf5":"1.10.8"})",
                   .layout = R"({"data":2})"};
  manifest.files = {{"index.h5", {.bytes = 10, .hash = 1}}, {"rank_00000.h5", {.bytes = 20, .hash = ~uint64_t{0}}}};
  manifest.tensors["model/w"] = {.spec = {DType::BF16, {4, 3}},
                                 .pieces = {{.block = {{0, 0}, {1, 3}},
                                             .file = "rank_00000.h5",
                                             .dataset = "model/w",
                                             .file_offset = 2048,
                                             .hash = 77},
                                            {.block = {{1, 0}, {3, 3}},
                                             .file = "rank_00000.h5",
                                             .dataset = "model/w#1",
                                             .file_offset = 4096,
                                             .hash = 78}}};
  manifest.documents = {{"data", R"({"cursor":9007199254740993,"fraction":0.1})"}};
  manifest.rank_documents = {{{"rng", "[1,2]"}}, {}};
  return manifest;
}

}  // namespace

TEST_CASE("a manifest comes back", "[checkpoint]") {
  const Manifest manifest = example();
  const std::string text = to_text(manifest);
  const Manifest read = parse_manifest(text, "m");
  CHECK(to_text(read) == text);
  CHECK(read.info.tokens == manifest.info.tokens);
  CHECK(read.info.role == CheckpointRole::StageFinal);
  CHECK(read.info.stage == manifest.info.stage);
  CHECK(read.info.recipe == manifest.info.recipe);
  CHECK(read.files == manifest.files);
  CHECK(read.documents == manifest.documents);
  CHECK(read.rank_documents == manifest.rank_documents);
  const StoredTensor& tensor = read.tensors.at("model/w");
  CHECK(tensor.spec == TensorSpec{DType::BF16, {4, 3}});
  CHECK(tensor.pieces.at(1).block.offset == std::vector<int64_t>{1, 0});
  CHECK(tensor.pieces.at(1).dataset == "model/w#1");
  CHECK(tensor.pieces.at(1).file_offset == 4096);
  CHECK(tensor.pieces.at(1).hash == 78);
}

TEST_CASE("a change of any bit, a cut or an addition is noticed", "[checkpoint]") {
  const std::string text = to_text(example());
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
    REQUIRE_THROWS_AS(parse_manifest(changed, "m"), CheckpointError);
    REQUIRE_THROWS_AS(parse_manifest(text.substr(0, at), "m"), CheckpointError);
  }
  CHECK_THROWS_AS(parse_manifest(text + " ", "m"), CheckpointError);
}

TEST_CASE("a manifest that contradicts itself is refused", "[checkpoint]") {
  Manifest gap = example();
  gap.tensors["model/w"].pieces.pop_back();
  CHECK_THROWS_WITH(parse_manifest(to_text(gap), "m"), ContainsSubstring("model/w") && ContainsSubstring("3 of its 12"));
  Manifest stranger = example();
  stranger.tensors["model/w"].pieces[0].file = "rank_00009.h5";
  CHECK_THROWS_WITH(parse_manifest(to_text(stranger), "m"), ContainsSubstring("rank_00009.h5"));
  Manifest outside = example();
  outside.files["../index.h5"] = {.bytes = 1, .hash = 1};
  CHECK_THROWS_WITH(parse_manifest(to_text(outside), "m"), ContainsSubstring("../index.h5"));
  Manifest broken = example();
  broken.documents["data"] = std::string("{");
  CHECK_THROWS_WITH(to_text(broken), ContainsSubstring("\"data\" is not JSON"));
  broken = example();
  broken.info.layout = std::string("[]");
  CHECK_THROWS_WITH(to_text(broken), ContainsSubstring("layout"));
}
