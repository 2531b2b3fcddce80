// Every block of pieces of one to four dimensions, into every place of a larger tensor, equals a copy element by element.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fcntl.h>

#include "base/philox.h"
#include "checkpoint/block_read.h"
#include "checkpoint/piece.h"
#include "storage/atomic_write.h"
#include "storage/temporary_directory.h"
#include "tensor/tensor.h"

using namespace longhaul;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int64_t kOffset = 40;  // of the piece in the file

// A file with a piece of `shape` whose elements are their row-major numbers.
void write_piece(const std::filesystem::path& path, const Shape& shape) {
  std::string bytes(kOffset, 'x');
  for (int32_t i = 0; i < shape.numel(); ++i) {
    bytes.append(reinterpret_cast<const char*>(&i), sizeof(i));
  }
  write_text_atomically(path, bytes, ErrorKind::Checkpoint);
}

FileDescriptor open_for_reading(const std::filesystem::path& path) { return FileDescriptor(::open(path.c_str(), O_RDONLY)); }

}  // namespace

TEST_CASE("blocks of a piece are read into blocks of a tensor", "[checkpoint]") {
  const TemporaryDirectory folder(TemporaryDirectory::fast_parent());
  const RandomStream random{.seed = 5, .stream = 1};
  uint64_t drawn = 0;
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random.words(drawn++)[0] % static_cast<uint64_t>(high - low + 1));
  };
  for (int round = 0; round < 400; ++round) {
    const int rank = static_cast<int>(draw(0, 4));
    Shape piece;
    Shape count;
    Shape whole;
    std::vector<int64_t> offset;
    std::vector<int64_t> destination_offset;
    for (int d = 0; d < rank; ++d) {
      // Whole dimensions and parts of them, so that runs of all lengths come up; wide rows go past the size of one read.
      const bool is_wide = d == rank - 1 && draw(0, 9) == 0;
      piece.append(is_wide ? draw(20000, 90000) : draw(1, 6));
      count.append(draw(0, 1) == 0 ? piece[d] : draw(1, piece[d]));
      offset.push_back(draw(0, piece[d] - count[d]));
      whole.append(count[d] + (draw(0, 1) == 0 ? 0 : draw(0, 3)));
      destination_offset.push_back(draw(0, whole[d] - count[d]));
    }
    CAPTURE(round, piece.to_string(), count.to_string(), whole.to_string(), offset, destination_offset);
    write_piece(folder.path() / "piece", piece);
    Tensor got(DType::I32, whole);
    Tensor wanted(DType::I32, whole);
    for (Tensor* tensor : {&got, &wanted}) {
      std::fill(tensor->values<int32_t>().begin(), tensor->values<int32_t>().end(), -1);
    }
    read_from_file(open_for_reading(folder.path() / "piece"),
                   {.file_offset = kOffset, .piece = piece, .offset = offset, .count = count, .destination_offset = destination_offset},
                   got);
    Tensor numbers(DType::I32, piece);
    for (int32_t i = 0; i < piece.numel(); ++i) {
      numbers.values<int32_t>()[static_cast<size_t>(i)] = i;
    }
    TensorView from = numbers;
    TensorView to = wanted;
    for (int d = 0; d < rank; ++d) {
      const auto at = static_cast<size_t>(d);
      from = from.slice(d, offset[at], offset[at] + count[d]);
      to = to.slice(d, destination_offset[at], destination_offset[at] + count[d]);
    }
    if (rank == 0) {
      wanted.values<int32_t>()[0] = 0;
    } else {
      copy_strided(from, to);
    }
    REQUIRE(std::memcmp(got.view().raw(), wanted.view().raw(), static_cast<size_t>(got.view().bytes())) == 0);
  }
}

TEST_CASE("a block beyond the end of its file is an error", "[checkpoint]") {
  const TemporaryDirectory folder;
  write_piece(folder.path() / "piece", {4, 5});
  const Tensor rows(DType::I32, {2, 5});
  const std::vector<int64_t> none{0, 0};
  const auto read_at = [&](int64_t file_offset) {
    read_from_file(open_for_reading(folder.path() / "piece"),
                   {.file_offset = file_offset, .piece = {4, 5}, .offset = none, .count = {2, 5}, .destination_offset = none}, rows);
  };
  CHECK_NOTHROW(read_at(kOffset));
  CHECK_THROWS_WITH(read_at(kOffset + 45), ContainsSubstring("the file ends before byte"));
  CHECK_THROWS_WITH(read_at(-8), ContainsSubstring("cannot read"));
}
