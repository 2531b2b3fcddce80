// HDF5 files: tensors, blocks, attributes and virtual datasets come back bit for bit; failures explain themselves.
#include "storage/hdf5.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>

#include "storage/atomic_write.h"
#include "storage/temporary_directory.h"
#include "tensor/tensor.h"

using namespace longhaul;
using Catch::Matchers::ContainsSubstring;

namespace {

// Every byte differs from its neighbours; among floats there are NaNs and subnormals, which must survive.
Tensor pattern(DType dtype, const Shape& shape, uint8_t seed) {
  Tensor tensor(dtype, shape);
  auto* bytes = static_cast<uint8_t*>(tensor.view().raw());
  for (int64_t i = 0; i < tensor.view().bytes(); ++i) {
    bytes[i] = static_cast<uint8_t>(seed + i * 37 + i / 256);
  }
  return tensor;
}

bool same_bytes(const TensorView& a, const TensorView& b) {
  return a.spec() == b.spec() && (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0);
}

}  // namespace

TEST_CASE("tensors of every type and rank come back bit for bit", "[storage]") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "tensors.h5";
  const std::vector<DType> dtypes{DType::F64, DType::F32, DType::BF16, DType::I64, DType::I32, DType::U8};
  const std::vector<Shape> shapes{{}, {7}, {3, 5}, {2, 3, 4}, {2, 1, 3, 2}, {0, 4}};
  hdf5::File file = hdf5::create_file(path);
  for (const DType dtype : dtypes) {
    for (size_t s = 0; s < shapes.size(); ++s) {
      hdf5::write_dataset(file, fmt::format("group.a/{}/{}", to_string(dtype), s), pattern(dtype, shapes[s], static_cast<uint8_t>(s)));
    }
  }
  file.close();
  file = hdf5::open_file(path);
  for (const DType dtype : dtypes) {
    for (size_t s = 0; s < shapes.size(); ++s) {
      const std::string name = fmt::format("group.a/{}/{}", to_string(dtype), s);
      CAPTURE(name);
      CHECK(hdf5::dataset_spec(hdf5::open_dataset(file, name)) == TensorSpec{dtype, shapes[s]});
      const Tensor read = Tensor::zeros(dtype, shapes[s]);
      hdf5::read_dataset(file, name, read);
      CHECK(same_bytes(read, pattern(dtype, shapes[s], static_cast<uint8_t>(s))));
    }
  }
  CHECK_THROWS_WITH(hdf5::read_dataset(file, "group.a/f32/1", Tensor(DType::F64, {7})), ContainsSubstring("is f32[7], wanted f64[7]"));
  CHECK_THROWS_WITH(hdf5::read_dataset(file, "group.a/bf16/1", Tensor(DType::F32, {7})), ContainsSubstring("is bf16[7]"));
  CHECK_THROWS_AS(hdf5::read_dataset(file, "absent", Tensor(DType::F32, {7})), CheckpointError);
  CHECK(hdf5::has_object(file, "group.a/f32/1"));
  CHECK_FALSE(hdf5::has_object(file, "group.b/f32/1"));
  CHECK_FALSE(hdf5::has_object(file, "group.a/f32/9"));
}

TEST_CASE("blocks are written and read where they belong", "[storage]") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "blocks.h5";
  const Tensor whole = pattern(DType::F32, {6, 5}, 3);
  hdf5::File file = hdf5::create_file(path);
  {
    const hdf5::Dataset dataset = hdf5::create_dataset(file, "x", whole.view().spec());
    const std::vector<int64_t> top{0, 0};
    const std::vector<int64_t> bottom{4, 0};
    hdf5::write_block(dataset, top, whole.view().slice(0, 0, 4));
    hdf5::write_block(dataset, bottom, whole.view().slice(0, 4, 6));
    CHECK_THROWS_WITH(hdf5::write_block(dataset, bottom, whole.view().slice(0, 0, 3)), ContainsSubstring("outside"));
    const int64_t at = hdf5::byte_offset(dataset);
    REQUIRE(at > 0);
    file.close();  // closes the dataset too
    const std::string content = read_text(path, ErrorKind::Checkpoint);
    CHECK(std::memcmp(content.data() + at, whole.view().raw(), static_cast<size_t>(whole.view().bytes())) == 0);
  }
  file = hdf5::open_file(path);
  const hdf5::Dataset dataset = hdf5::open_dataset(file, "x");
  const Tensor target = Tensor::zeros(DType::F32, {4, 4});
  const std::vector<int64_t> from{2, 1};
  const std::vector<int64_t> to{1, 2};
  hdf5::read_block(dataset, {.offset = from, .destination_offset = to, .count = {3, 2}}, target);
  const auto bits = [](const Tensor& tensor, int64_t row, int64_t column) {
    return std::bit_cast<uint32_t>(tensor.values<float>()[static_cast<size_t>(row * tensor.view().size(1) + column)]);
  };
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t column = 0; column < 4; ++column) {
      const bool is_inside = row >= 1 && column >= 2;
      CHECK(bits(target, row, column) == (is_inside ? bits(whole, row + 1, column - 1) : 0u));
    }
  }
  CHECK_THROWS_WITH(hdf5::read_block(dataset, {.offset = from, .destination_offset = to, .count = {3, 5}}, Tensor(DType::F32, {9, 9})),
                    ContainsSubstring("outside"));
  CHECK_THROWS_AS(hdf5::read_block(dataset, {.offset = from, .destination_offset = to, .count = {1, 1}}, Tensor(DType::I32, {4, 4})),
                  CheckpointError);
}

TEST_CASE("attributes keep text and numbers", "[storage]") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "attributes.h5";
  const std::string long_text(200'000, 'r');  // longer than the 64 KiB that old files allow
  hdf5::File file = hdf5::create_file(path);
  hdf5::write_attribute(file, "/", "recipe", long_text);
  hdf5::write_attribute(file, "/", "empty", "");
  hdf5::write_attribute(file, "/", "stage", "8k → 64k");
  hdf5::write_attribute(file, "/", "tokens", int64_t{1} << 60);
  hdf5::write_attribute(file, "/", "loss", 0.1);
  file.close();
  file = hdf5::open_file(path);
  CHECK(hdf5::read_string_attribute(file, "/", "recipe") == long_text);
  CHECK(hdf5::read_string_attribute(file, "/", "empty").empty());
  CHECK(hdf5::read_string_attribute(file, "/", "stage") == "8k → 64k");
  CHECK(hdf5::read_i64_attribute(file, "/", "tokens") == int64_t{1} << 60);
  CHECK(hdf5::read_f64_attribute(file, "/", "loss") == 0.1);
  CHECK(hdf5::has_attribute(file, "/", "loss"));
  CHECK_FALSE(hdf5::has_attribute(file, "/", "gain"));
  CHECK_THROWS_AS(hdf5::read_i64_attribute(file, "/", "stage"), CheckpointError);
  CHECK_THROWS_AS(hdf5::read_f64_attribute(file, "/", "gain"), CheckpointError);
}

TEST_CASE("a virtual dataset presents pieces of several files, also after a move", "[storage]") {
  const TemporaryDirectory folder;
  const auto before = folder.path() / "before";
  std::filesystem::create_directory(before);
  for (const DType dtype : {DType::F32, DType::BF16, DType::I64}) {
    const Tensor whole = pattern(dtype, {4, 3}, 9);
    for (int part = 0; part < 2; ++part) {
      hdf5::File file = hdf5::create_file(before / fmt::format("part{}.h5", part));
      hdf5::write_dataset(file, "g/x", whole.view().slice(0, 2 * part, 2 * part + 2));
      hdf5::write_dataset(file, "scalar", pattern(dtype, {}, static_cast<uint8_t>(part)));
    }
    {
      hdf5::File index = hdf5::create_file(before / "index.h5");
      const std::vector<hdf5::VirtualPiece> pieces{{.file = "part0.h5", .dataset = "g/x", .offset = {0, 0}, .shape = {2, 3}},
                                                   {.file = "part1.h5", .dataset = "g/x", .offset = {2, 0}, .shape = {2, 3}}};
      hdf5::write_virtual_dataset(index, "g/x", whole.view().spec(), pieces);
      hdf5::write_virtual_dataset(index, "none", {dtype, {0, 3}}, {});
      const std::vector<hdf5::VirtualPiece> scalar{{.file = "part1.h5", .dataset = "scalar", .offset = {}, .shape = {}}};
      hdf5::write_virtual_dataset(index, "scalar", {dtype, {}}, scalar);
    }
    const auto after = folder.path() / "after";
    std::filesystem::rename(before, after);
    const Tensor read = Tensor::zeros(dtype, {4, 3});
    {
      const hdf5::File index = hdf5::open_file(after / "index.h5");
      hdf5::read_dataset(index, "g/x", read);
      CHECK(same_bytes(read, whole));
      hdf5::read_dataset(index, "none", Tensor(dtype, {0, 3}));
      const Tensor scalar(dtype, {});
      hdf5::read_dataset(index, "scalar", scalar);
      CHECK(same_bytes(scalar, pattern(dtype, {}, 1)));
    }
    std::filesystem::remove(after / "part1.h5");
    hdf5::read_dataset(hdf5::open_file(after / "index.h5"), "g/x", read);
    CHECK(same_bytes(read.view().slice(0, 0, 2), whole.view().slice(0, 0, 2)));
    if (dtype == DType::F32) {
      CHECK(std::isnan(read.values<float>()[6]));
    } else if (dtype == DType::BF16) {
      CHECK(std::isnan(static_cast<float>(read.values<BFloat16>()[6])));
    } else {
      CHECK(read.values<int64_t>()[6] == std::numeric_limits<int64_t>::min());
    }
    std::filesystem::rename(after, before);
  }
}

TEST_CASE("a file that is locked, absent or damaged is an error at once", "[storage]") {
  const TemporaryDirectory folder;
  const auto path = folder.path() / "file.h5";
  { hdf5::write_dataset(hdf5::create_file(path), "x", pattern(DType::F32, {64}, 1)); }
  std::array<int, 2> ready{};
  REQUIRE(::pipe(ready.data()) == 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const int fd = ::open(path.c_str(), O_RDWR);
    const char answer = ::flock(fd, LOCK_EX) == 0 ? 'y' : 'n';
    (void)!::write(ready[1], &answer, 1);
    ::pause();
    ::_exit(0);
  }
  char answer = 'n';
  REQUIRE(::read(ready[0], &answer, 1) == 1);
  REQUIRE(answer == 'y');
  CHECK_THROWS_WITH(hdf5::open_file(path), ContainsSubstring("HDF5_USE_FILE_LOCKING") && ContainsSubstring(path.string()));
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  CHECK_NOTHROW(hdf5::open_file(path));

  CHECK_THROWS_WITH(hdf5::open_file(folder.path() / "absent.h5"), ContainsSubstring("No such file"));
  CHECK_THROWS_AS(hdf5::create_file(folder.path() / "absent" / "file.h5"), CheckpointError);
  write_text_atomically(path, "this is not an HDF5 file", ErrorKind::Checkpoint);
  CHECK_THROWS_AS(hdf5::open_file(path), CheckpointError);
}
