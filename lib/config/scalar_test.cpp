// Scalars: what is accepted, what is refused, and that every number survives dump and read bit for bit.
#include "config/scalar.h"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "config/test_options.h"

using namespace longhaul;
using namespace longhaul::config;
using config_test::OptimizerKind;

namespace {

Node plain(std::string text) { return Node::scalar(std::move(text), Node::Style::Plain); }
Node quoted(std::string text) { return Node::scalar(std::move(text), Node::Style::Quoted); }

int64_t integer(const std::string& text) {
  int64_t value = -77;
  INFO(text);
  REQUIRE(read_scalar(plain(text), value) == "");
  return value;
}
template <class T>
std::string refused(const Node& node) {
  T value{};
  return read_scalar(node, value);
}

}  // namespace

TEST_CASE("integers may have exponents and separators when exact", "[config]") {
  CHECK(integer("0") == 0);
  CHECK(integer("-0") == 0);
  CHECK(integer("42") == 42);
  CHECK(integer("+42") == 42);
  CHECK(integer("1e3") == 1000);
  CHECK(integer("1.0e6") == 1'000'000);
  CHECK(integer("2.50e2") == 250);
  CHECK(integer("1_000_000") == 1'000'000);
  CHECK(integer("1e+3") == 1000);
  CHECK(integer("5000e-3") == 5);
  CHECK(integer("3.0") == 3);
  CHECK(integer("0e999999999999999999999") == 0);
  CHECK(integer("9223372036854775807") == std::numeric_limits<int64_t>::max());
  CHECK(integer("-9223372036854775808") == std::numeric_limits<int64_t>::min());
}

TEST_CASE("what is not an integer is refused", "[config]") {
  for (const char* text : {"1.5", "fast", "", "-", "+", ".", "e3", "1e", "1e-3", "0x10", "007", "1__0", "_1", "1_", "1 2", "--1",
                           "1.2.3", "12abc", ".inf", "true"}) {
    INFO(text);
    CHECK(refused<int64_t>(plain(text)) == "an integer");
  }
  const std::string range64 = "an integer between -9223372036854775808 and 9223372036854775807";
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "1e19", "1e999999999999999999999"}) {
    INFO(text);
    CHECK(refused<int64_t>(plain(text)) == range64);
  }
  CHECK(refused<int>(plain("2147483648")) == "an integer between -2147483648 and 2147483647");
  CHECK(refused<int>(plain("2147483647")) == "");
  CHECK(refused<int64_t>(quoted("5")) == "an integer");
  CHECK(refused<int64_t>(Node{}) == "an integer");
}

TEST_CASE("numbers are decimal and finite", "[config]") {
  const auto number = [](const char* text) {
    double value = -77;
    INFO(text);
    REQUIRE(read_scalar(plain(text), value) == "");
    return value;
  };
  CHECK(number("1") == 1.0);
  CHECK(number("3.0e-4") == 3.0e-4);
  CHECK(number("1E-5") == 1e-5);
  CHECK(number(".5") == 0.5);
  CHECK(number("5.") == 5.0);
  CHECK(number("-5.e1") == -50.0);
  CHECK(number("1_000.5") == 1000.5);
  CHECK(std::signbit(number("-0.0")));
  CHECK(number("5e-324") == 5e-324);
  for (const char* text : {".inf", "-.inf", ".nan", "nan", "inf"}) {
    INFO(text);
    CHECK(refused<double>(plain(text)) == "a finite number");
  }
  for (const char* text : {"", "1e", "0x1p3", "1,5", "fast", "1f", "infinity"}) {
    INFO(text);
    CHECK(refused<double>(plain(text)) == "a number");
  }
  CHECK(refused<double>(plain("1e400")) == "a number that fits into 64 bits of floating point");
  CHECK(refused<double>(plain("1e-400")) == "a number that fits into 64 bits of floating point");
  CHECK(refused<float>(plain("1e39")) == "a number that fits into 32 bits of floating point");
  CHECK(refused<double>(quoted("1.5")) == "a number");
}

TEST_CASE("booleans are only true and false", "[config]") {
  bool value = false;
  CHECK(read_scalar(plain("true"), value) == "");
  CHECK(value);
  CHECK(read_scalar(plain("false"), value) == "");
  CHECK_FALSE(value);
  for (const char* text : {"yes", "on", "True", "1", ""}) {
    CHECK(refused<bool>(plain(text)) == "true or false");
  }
  CHECK(refused<bool>(quoted("true")) == "true or false");
}

TEST_CASE("text is taken as written", "[config]") {
  std::string value;
  CHECK(read_scalar(plain("8k"), value) == "");
  CHECK(value == "8k");
  CHECK(read_scalar(plain("1.10"), value) == "");
  CHECK(value == "1.10");
  CHECK(read_scalar(quoted("true"), value) == "");
  CHECK(value == "true");
  CHECK(refused<std::string>(plain("true")) == "text (in quotes if the word itself is meant)");
  CHECK(refused<std::string>(Node{}) == "text");
  CHECK(refused<std::string>(quoted(std::string("a\0b", 3))) == "text without NUL characters");
}

TEST_CASE("enum tables give names both ways", "[config]") {
  CHECK(enum_name(OptimizerKind::AdamW) == "adamw");
  CHECK(enum_value<OptimizerKind>("muon") == OptimizerKind::Muon);
  CHECK_FALSE(enum_value<OptimizerKind>("Muon").has_value());
  CHECK(enum_choices<OptimizerKind>() == "muon, adamw, off");
  CHECK_THROWS_AS(enum_name(static_cast<OptimizerKind>(9)), InternalError);
  OptimizerKind kind{};
  CHECK(read_scalar(plain("off"), kind) == "");
  CHECK(kind == OptimizerKind::Off);
  CHECK(refused<OptimizerKind>(plain("sgd")) == "one of muon, adamw, off");
  CHECK(emit_inline(write_scalar(OptimizerKind::Off)) == "\"off\"");  // other YAML readers would take it for false
}

TEST_CASE("numbers are written so that they keep every bit and look like numbers", "[config]") {
  CHECK(emit_inline(write_scalar(1.0)) == "1.0");
  CHECK(emit_inline(write_scalar(3e-4)) == "3.0e-4");
  CHECK(emit_inline(write_scalar(1e-5)) == "1.0e-5");
  CHECK(emit_inline(write_scalar(1e22)) == "1.0e+22");
  CHECK(emit_inline(write_scalar(1.5e-300)) == "1.5e-300");
  CHECK(emit_inline(write_scalar(0.25)) == "0.25");
  CHECK(emit_inline(write_scalar(0.1F)) == "0.1");
  CHECK(emit_inline(write_scalar(int64_t{-5})) == "-5");
  CHECK_THROWS_AS(write_scalar(std::numeric_limits<double>::infinity()), InternalError);

  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<double>(random());
    const auto small = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(value)) {
      double again = 0;
      REQUIRE(read_scalar(write_scalar(value), again) == "");
      REQUIRE(std::bit_cast<uint64_t>(again) == std::bit_cast<uint64_t>(value));
    }
    if (std::isfinite(small)) {
      float again = 0;
      REQUIRE(read_scalar(write_scalar(small), again) == "");
      REQUIRE(std::bit_cast<uint32_t>(again) == std::bit_cast<uint32_t>(small));
    }
    const auto whole = static_cast<int64_t>(random());
    int64_t again = 0;
    REQUIRE(read_scalar(write_scalar(whole), again) == "");
    REQUIRE(again == whole);
  }
}

TEST_CASE("text is quoted where YAML would read something else", "[config]") {
  for (const char* text : {"", "true", "Yes", "off", "null", "~", "1e3", "-1", ".inf", "a b", "a: b", "#x", "- x", "{", "8k", "a\nb"}) {
    INFO(text);
    CHECK(emit_inline(write_scalar(std::string(text))).starts_with('"'));
  }
  for (const char* text : {"runs/quickstart", "/data/x_1.bin", "bf16", "_x", "USR1"}) {
    INFO(text);
    CHECK(emit_inline(write_scalar(std::string(text))) == text);
  }
}
