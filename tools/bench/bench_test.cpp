// Sizes, counts and shares of the bench; every case runs at a small size in both directions and types. No timing asserts.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tools/bench/output.h"

namespace longhaul::bench {
namespace {

const Operation& named(const std::vector<Operation>& operations, const std::string& name) {
  return *std::find_if(operations.begin(), operations.end(), [&](const Operation& operation) { return operation.name == name; });
}

TEST_CASE("sizes are read by letter, and what is wrong is named", "[tools]") {
  using Catch::Matchers::ContainsSubstring;
  using Catch::Matchers::MessageMatches;
  Sizes sizes{{"T", 1}, {"H", 2}};
  sizes.set("T=8192");
  CHECK(sizes.text() == "T=8192,H=2");
  sizes.set("H=3,T=5");
  CHECK(sizes["T"] == 5);
  CHECK(sizes["H"] == 3);
  sizes.set("");
  CHECK(sizes.text() == "T=5,H=3");
  CHECK_THROWS_MATCHES(sizes.set("X=3"), RecipeError, MessageMatches(ContainsSubstring("\"X\"")));
  for (const char* bad : {"T", "T=", "T=0", "T=-1", "T=2x", "=3", "T=1.5"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(sizes.set(bad), RecipeError);
  }
}

TEST_CASE("every operation runs in its directions and in both types", "[tools]") {
  for (Operation& operation : all_operations()) {
    operation.sizes.set(operation.name == "moe"                ? "T=5,D=8,E=4,K=2,L=4,I=4"
                        : operation.name == "kda_decode"       ? "B=2,H=2,D=16"
                        : operation.name.starts_with("kda")    ? "T=70,H=2,D=16"
                                                               : "T=5");
    for (const DType dtype : {DType::F32, DType::F64}) {
      for (const Direction direction : operation.directions) {
        CAPTURE(operation.name, to_string(dtype), direction == Direction::Forward);
        const std::unique_ptr<Case> work = operation.make(operation.sizes, dtype, direction);
        CHECK_NOTHROW(work->run());
        CHECK_NOTHROW(work->run());
        CHECK(work->flops > 0);
        CHECK(work->bytes > 0);
      }
    }
  }
}

TEST_CASE("operations and bytes are those of the formulas", "[tools]") {
  const std::vector<Operation> all = all_operations();
  const auto forward = [&](const std::string& name, const char* sizes) {
    Operation operation = named(all, name);
    operation.sizes.set(sizes);
    return operation.make(operation.sizes, DType::F32, Direction::Forward);
  };
  CHECK(forward("linear", "T=3,I=4,O=5")->flops == 2 * 3 * 4 * 5);
  CHECK(forward("linear", "T=3,I=4,O=5")->bytes == 4 * (12 + 20 + 15));
  // 6 * 16^2 + 3 * 64 * 16 + 64^2 a token and head; linear in tokens
  CHECK(forward("kda", "T=64,H=2,D=16")->flops == 64 * 2 * (1536 + 3072 + 4096));
  CHECK(forward("kda", "T=128,H=2,D=16")->flops == 2 * forward("kda", "T=64,H=2,D=16")->flops);
  CHECK(forward("kda_unbounded", "T=64,H=2,D=16")->flops == forward("kda", "T=64,H=2,D=16")->flops);
  CHECK(forward("kda_decode", "B=3,H=2,D=4")->flops == 7 * 3 * 2 * 16);
  CHECK(forward("kda_decode", "B=3,H=2,D=4")->bytes == 4 * (2 * 96 + 5 * 24 + 6));
  // pairs below the diagonal, quadratic in tokens
  CHECK(forward("attention", "T=4,H=1,K=3,V=2")->flops == 10 * 2 * 5);
  CHECK(forward("attn_res_mix", "T=2,S=3,D=4")->flops == 6 * 24);
  CHECK(forward("moe", "T=1,D=8,E=4,K=2,L=4,I=4")->flops == 2 * (32 + 64 + 96 + 96));
}

TEST_CASE("more experts a token than there are is refused", "[tools]") {
  const std::vector<Operation> all = all_operations();
  Operation moe = named(all, "moe");
  moe.sizes.set("E=2,K=3");
  CHECK_THROWS_AS(moe.make(moe.sizes, DType::F32, Direction::Forward), RecipeError);
}

TEST_CASE("the bound is the slower of arithmetic and memory", "[tools]") {
  const Ceiling ceiling{.flops = 100, .bytes = 10};
  CHECK(bound_of(200, 10, ceiling).seconds == 2);
  CHECK(bound_of(200, 10, ceiling).is_compute);
  CHECK(bound_of(100, 50, ceiling).seconds == 5);
  CHECK_FALSE(bound_of(100, 50, ceiling).is_compute);
}

TEST_CASE("measuring repeats until the time is over, and long work once", "[tools]") {
  int64_t calls = 0;
  const Timing quick = measure([&] { ++calls; }, 1e-9);
  CHECK(quick.repeats >= 1);
  CHECK(calls == quick.repeats + 1);
  CHECK(quick.median_seconds >= quick.best_seconds);
}

// As small as a model with every kind of layer can be.
constexpr const char* kRecipe = LH_SOURCE_DIR "/recipes/tiny_k3.yaml";

TEST_CASE("a step of a recipe is measured without its data, and its shares add up", "[tools]") {
  const StepMeasurement step = measure_step({.recipe = kRecipe, .overrides = {"stages.0.global_batch_tokens=128"}, .seconds = 1e-3});
  CHECK(step.tokens == 128);
  CHECK(step.sequence_length == 64);
  CHECK(step.flops > 0);
  CHECK(step.timing.median_seconds > 0);
  for (const std::vector<StepShare>& shares : {step.layers, step.operations}) {
    REQUIRE(shares.size() == 8);  // every kind of layer and of operation occurs, and the rest
    double sum = 0;
    for (const StepShare& share : shares) {
      CAPTURE(share.name);
      CHECK(share.seconds >= 0);
      CHECK((share.calls > 0 || share.name == "other"));
      sum += share.seconds;
    }
    CHECK(sum > 0);
  }
}

TEST_CASE("the layout of a recipe does not matter to a step, an unknown stage does", "[tools]") {
  const std::vector<std::string> overrides = {"stages.1.global_batch_tokens=256", "parallel.pipeline=2", "parallel.data=2", "parallel.expert=2"};
  CHECK(measure_step({.recipe = kRecipe, .overrides = overrides, .stage = "long", .seconds = 1e-3}).stage == "long");
  CHECK_THROWS_AS(measure_step({.recipe = kRecipe, .overrides = {}, .stage = "nowhere", .seconds = 1e-3}), RecipeError);
}

TEST_CASE("rows and JSON say the same", "[tools]") {
  const Row row{.operation = "linear", .direction = Direction::Backward, .sizes = "T=1", .dtype = DType::F64, .flops = 2e9, .bytes = 1e6,
                .timing = {.median_seconds = 0.5, .best_seconds = 0.4, .repeats = 3}};
  const Ceiling ceiling{.flops = 8e9, .bytes = 1e9};
  const nlohmann::ordered_json json = to_json(row, ceiling);
  CHECK(json["gflops"] == 4.0);
  CHECK(json["share_of_ceiling"] == 0.5);
  CHECK(json["bound"] == "compute");
  CHECK(json["dtype"] == "fp64");
  CHECK(row_text(row, ceiling).find("50 % (compute)") != std::string::npos);
}

}  // namespace
}  // namespace longhaul::bench
