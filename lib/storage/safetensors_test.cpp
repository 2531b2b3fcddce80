// The safetensors format: golden bytes, conversions, every rule of the header, and that no mutation of a good file ever
// does anything but load or fail with a ConversionError.
#include "storage/safetensors.h"

#include <unistd.h>

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/philox.h"
#include "storage/atomic_write.h"
#include "storage/half.h"
#include "storage/safetensors_header.h"
#include "storage/safetensors_writer.h"
#include "storage/temporary_directory.h"
#include "tensor/tensor.h"

using namespace longhaul;
using Catch::Matchers::ContainsSubstring;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

template <class T>
std::string raw(std::vector<T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
}

void write_raw(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

// Why a header with these bytes of data is refused; empty when it is accepted.
std::string refusal(const std::string& header, const std::string& data) {
  const std::string file = file_of(header, data);
  try {
    (void)parse_safetensors_header(bytes_of(file));
  } catch (const ConversionError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("one small file has the published bytes", "[storage]") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "golden.safetensors";
  const Tensor a = Tensor::from<float>({1.0f, 2.0f}, {2});
  SafetensorsWriter writer(path, {{.name = "a", .dtype = "F32", .shape = {2}}});
  writer.write("a", a);
  writer.finish();
  const std::string expected = file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"
                                       "  ",
                                       std::string("\0\0\x80\x3f\0\0\0\x40", 8));
  REQUIRE(expected.size() == 72);
  CHECK(read_text(path, ErrorKind::Conversion) == expected);
  CHECK(SafetensorsFile(path).read_as_f64("a") == std::vector<double>{1, 2});
}

TEST_CASE("tensors of every kind come back", "[storage]") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "all.safetensors";
  const std::vector<std::pair<SafetensorsDeclaration, std::string>> tensors{
      {{"odd", "U8", {3}}, raw<uint8_t>({1, 2, 255})},  // everything after it is unaligned
      {{"wide", "F64", {1, 2}}, raw<double>({0.1, -1e300})},
      {{"single", "F32", {2, 1}}, raw<float>({0.1f, -3.0f})},
      {{"half", "F16", {4}}, raw<uint16_t>({0x3c00, 0xc000, 0x0001, 0x7bff})},
      {{"brain", "BF16", {2}}, raw<uint16_t>({0x3f80, 0xc040})},
      {{"ids", "I64", {2}}, raw<int64_t>({-5, int64_t{1} << 60})},
      {{"flags", "BOOL", {2}}, raw<uint8_t>({0, 1})},
      {{"scalar", "I32", {}}, raw<int32_t>({7})},
      {{"none", "F32", {0, 8}}, ""},
      {{"nibbles", "F4", {6}}, raw<uint8_t>({0x12, 0x34, 0x56})},
      {{"rank five", "U8", {1, 1, 2, 1, 1}}, raw<uint8_t>({8, 9})},
  };
  std::vector<SafetensorsDeclaration> declarations;
  for (const auto& [declaration, data] : tensors) {
    declarations.push_back(declaration);
  }
  SafetensorsWriter writer(path, declarations, {{"format", "pt"}});
  for (const auto& [declaration, data] : tensors) {
    writer.write(declaration.name, bytes_of(data));
  }
  CHECK_FALSE(std::filesystem::exists(path));  // not before it is complete
  writer.finish();

  const SafetensorsFile file(path);
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.names().size() == tensors.size());
  for (const auto& [declaration, data] : tensors) {
    const SafetensorsEntry& entry = file.at(declaration.name);
    CHECK(entry.dtype == declaration.dtype);
    CHECK(entry.shape == declaration.shape);
    CHECK(std::string(reinterpret_cast<const char*>(entry.data.data()), entry.data.size()) == data);
  }
  CHECK(file.read_as_f64("wide") == std::vector<double>{0.1, -1e300});
  CHECK(file.read_as_f64("half") == std::vector<double>{1, -2, 0x1p-24, 65504});
  CHECK(file.read_as_f64("brain") == std::vector<double>{1, -3});
  CHECK(file.read_as_f64("scalar") == std::vector<double>{7});
  CHECK(file.read_as_i64("ids") == std::vector<int64_t>{-5, int64_t{1} << 60});
  CHECK(file.read_as_i64("flags") == std::vector<int64_t>{0, 1});
  CHECK_THROWS_AS(file.read_as_f64("ids"), ConversionError);  // 2^60 is no exact double neighbour of its successor
  CHECK_THROWS_AS(file.read_as_f64("nibbles"), ConversionError);
  CHECK_THROWS_AS(file.read_as_i64("single"), ConversionError);
  CHECK_THROWS_AS(file.at("missing"), ConversionError);
  CHECK(file.find("missing") == nullptr);

  const Tensor narrow_copy(DType::F32, {1, 2});
  file.read_into("wide", narrow_copy);
  CHECK(narrow_copy.values<float>()[0] == 0.1f);
  CHECK(std::isinf(narrow_copy.values<float>()[1]));
  const Tensor wide_copy(DType::F64, {2});
  file.read_into("brain", wide_copy);
  CHECK(wide_copy.values<double>()[1] == -3);
  const Tensor brain_copy(DType::BF16, {2});
  file.read_into("brain", brain_copy);
  CHECK(brain_copy.values<BFloat16>()[1].bits == 0xc040);
  file.read_into("none", Tensor(DType::F32, {0, 8}));
  CHECK_THROWS_AS(file.read_into("single", Tensor(DType::F32, {2})), ConversionError);     // another shape
  CHECK_THROWS_AS(file.read_into("single", Tensor(DType::BF16, {2, 1})), ConversionError);  // would lose bits
  CHECK_THROWS_AS(file.read_into("ids", Tensor(DType::F32, {2})), ConversionError);
}

TEST_CASE("half precision is exact at every value", "[storage]") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>((bits >> 10) & 31);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    const double fraction = bits & 1023;
    const float value = half_to_float(static_cast<uint16_t>(bits));
    if (exponent == 31) {
      REQUIRE((fraction == 0 ? std::isinf(value) : std::isnan(value)));
      continue;
    }
    const double expected = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1 + fraction / 1024, exponent - 15);
    REQUIRE(static_cast<double>(value) == sign * expected);
    REQUIRE(std::signbit(value) == (sign < 0));
  }
}

TEST_CASE("a header that breaks a rule is refused with the reason", "[storage]") {
  const std::string eight(8, '\0');
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  CHECK(refusal(good, eight).empty());
  CHECK(refusal("{}", "").empty());
  CHECK_THAT(refusal(good, eight + "x"), ContainsSubstring("belong to none"));
  CHECK_THAT(refusal(good, eight.substr(1)), ContainsSubstring("is it complete"));
  const auto entry = [](const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
  };
  const auto object = [](const std::string& entries) { return fmt::format("{{{}}}", entries); };
  const auto pair = [](const std::string& first, const std::string& second) { return fmt::format("{{{},{}}}", first, second); };
  CHECK_THAT(refusal(object(entry("a", "F33", "[2]", "[0,8]")), eight), ContainsSubstring("unknown dtype"));
  CHECK_THAT(refusal(object(entry("a", "F32", "[3]", "[0,8]")), eight), ContainsSubstring("needs 12 bytes"));
  CHECK_THAT(refusal(object(entry("a", "F32", "[-2]", "[0,8]")), eight), ContainsSubstring("not negative"));
  CHECK_THAT(refusal(object(entry("a", "F32", "[2.0]", "[0,8]")), eight), ContainsSubstring("whole numbers"));
  CHECK_THAT(refusal(object(entry("a", "F32", "[2]", "[8,0]")), eight), ContainsSubstring("[8, 0)"));
  CHECK_THAT(refusal(object(entry("a", "F32", "[2]", "[0,8,8]")), eight), ContainsSubstring("two numbers"));
  CHECK_THAT(refusal(object(entry("a", "F4", "[3]", "[0,2]")), eight), ContainsSubstring("whole bytes"));
  CHECK_THAT(refusal(object(entry("a", "F32", "[4611686018427387904,4]", "[0,8]")), eight), ContainsSubstring("overflows"));
  CHECK_THAT(refusal(object(entry("a", "F32", "[99999999999999999999]", "[0,8]")), eight), ContainsSubstring("whole numbers"));
  CHECK_THAT(refusal(object(entry("a", "F32", "[[2]]", "[0,8]")), eight), ContainsSubstring("nested"));
  CHECK_THAT(refusal(pair(entry("a", "F32", "[1]", "[0,4]"), entry("a", "F32", "[1]", "[4,8]")), eight), ContainsSubstring("twice"));
  CHECK_THAT(refusal(pair(entry("a", "F32", "[2]", "[0,8]"), entry("b", "F32", "[1]", "[4,8]")), eight), ContainsSubstring("overlapping"));
  CHECK_THAT(refusal(pair(entry("a", "U8", "[2]", "[0,2]"), entry("b", "F32", "[1]", "[4,8]")), eight), ContainsSubstring("hole"));
  CHECK_THAT(refusal(R"({"a":{"dtype":"F32","dtype":"F32","data_offsets":[0,8]}})", eight), ContainsSubstring("twice"));
  CHECK_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2]}})", eight), ContainsSubstring("exactly"));
  CHECK_THAT(refusal(R"({"__metadata__":{"n":1}})", ""), ContainsSubstring("strings to strings"));
  CHECK_THAT(refusal("[1]", ""), ContainsSubstring("not a JSON object"));
  CHECK_THAT(refusal("{\"a\xff\":1}", ""), ContainsSubstring("valid JSON"));
  CHECK_THAT(refusal("", ""), ContainsSubstring("not a JSON object"));
  CHECK_THAT(refusal(object(std::string(100000, '[')), ""), ContainsSubstring("JSON"));
  CHECK_THROWS_WITH(parse_safetensors_header(bytes_of("1234567")), ContainsSubstring("too short"));
  CHECK_THROWS_WITH(parse_safetensors_header(bytes_of(std::string(8, '\xff') + "{}")), ContainsSubstring("at most 100000000"));
  CHECK_THROWS_WITH(parse_safetensors_header(bytes_of(std::string("\x10\0\0\0\0\0\0\0{}", 10))), ContainsSubstring("claims 16 bytes"));
}

TEST_CASE("no mutation of a file does more than fail with a ConversionError", "[storage]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  const auto path = folder.path() / "mutated.safetensors";
  const std::string good = file_of(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"c":{"dtype":"I64","shape":[],"data_offsets":[32,40]}}  )",
      std::string(40, '\x11'));
  const std::string alphabet = "0123456789{}[]\",:-.eE \\u\xff\x80";
  int accepted = 0;
  int refused = 0;
  for (uint64_t round = 0; round < 2000; ++round) {
    CAPTURE(round);
    const RandomStream random{.seed = 20260101, .stream = round};
    uint64_t draw = 0;
    const auto next = [&](size_t below) { return random.below(draw++, below); };
    std::string file = good;
    const size_t edits = 1 + next(3);
    for (size_t edit = 0; edit < edits && !file.empty(); ++edit) {
      const size_t at = next(file.size());
      switch (next(5)) {
        case 0: file[at] = static_cast<char>(file[at] ^ (1 << next(8))); break;
        case 1: file[at] = alphabet[next(alphabet.size())]; break;
        case 2: file.erase(at, 1 + next(16)); break;
        case 3: file.insert(at, file, next(file.size()), 1 + next(32)); break;
        default: file.resize(at); break;
      }
      // Half of the time the length is made right again, so that mutations reach the parser and not only the length check.
      if (file.size() > 8 && next(2) == 0) {
        const size_t brace = file.rfind('}');
        const uint64_t length = brace == std::string::npos || brace < 8 ? file.size() - 8 : brace - 7;
        std::memcpy(file.data(), &length, sizeof(length));
      }
    }
    write_raw(path, file);
    try {
      const SafetensorsFile opened(path);
      for (const auto& [name, entry] : opened.entries()) {
        REQUIRE(safetensors_bits(entry.dtype) * entry.numel() == static_cast<int64_t>(entry.data.size()) * 8);
        try {
          (void)opened.read_as_f64(name);
        } catch (const ConversionError&) {  // a dtype that a mutation turned into one without conversion
        }
      }
      ++accepted;
    } catch (const ConversionError&) {
      ++refused;
    }
  }
  CHECK(accepted > 20);  // the data and the names may change
  CHECK(refused > 1000);
}

TEST_CASE("a tensor may be written in parts", "[storage]") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "parts.safetensors";
  SafetensorsWriter writer(path, {{"a", "U8", {5}}, {"none", "U8", {0}}, {"b", "U8", {1}}});
  writer.write_part("a", bytes_of("12"));
  CHECK_THROWS_AS(writer.write_part("b", bytes_of("x")), InternalError);  // "a" is not complete
  writer.write_part("a", bytes_of("345"));
  writer.write("none", bytes_of(""));
  writer.write_part("b", bytes_of("6"));
  writer.finish();
  CHECK(SafetensorsFile(path).read_as_i64("a") == std::vector<int64_t>{'1', '2', '3', '4', '5'});
  CHECK(SafetensorsFile(path).read_as_i64("b") == std::vector<int64_t>{'6'});
}

TEST_CASE("the writer refuses what the reader would", "[storage]") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "bad.safetensors";
  CHECK_THROWS_AS(SafetensorsWriter(path, {{"a", "F32", {1}}, {"a", "F32", {1}}}), ConversionError);
  CHECK_THROWS_AS(SafetensorsWriter(path, {{"__metadata__", "F32", {1}}}), ConversionError);
  CHECK_THROWS_AS(SafetensorsWriter(path, {{"a", "F31", {1}}}), ConversionError);
  CHECK_THROWS_AS(SafetensorsWriter(folder.path() / "absent" / "x", {}), ConversionError);
  {
    SafetensorsWriter writer(path, {{"a", "F32", {2}}, {"b", "U8", {1}}});
    CHECK_THROWS_AS(writer.write("b", bytes_of("x")), InternalError);
    CHECK_THROWS_AS(writer.write("a", bytes_of("1234567")), InternalError);
    CHECK_THROWS_AS(writer.finish(), InternalError);
  }
  CHECK(std::filesystem::is_empty(folder.path()));  // an abandoned file leaves nothing behind
}
