// See block_read.h.
#include "checkpoint/block_read.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/cast.h"
#include "storage/io_error.h"

namespace longhaul {

namespace {

constexpr int64_t kTogether = 1 << 20;  // bytes that are read in one go although some between are not wanted

class BlockReader {
 public:
  BlockReader(const FileDescriptor& file, const FileBlock& block, const TensorView& destination)
      : file_(file), block_(block), data_(static_cast<std::byte*>(destination.raw())), shape_(destination.shape()),
        element_(size_of(destination.dtype())) {
    // From here on in, block, piece and destination have the same rows, so that these lie together in both.
    inner_ = block.count.rank();
    while (inner_ > 0 && is_whole(inner_ - 1)) {
      --inner_;
    }
    run_ = element_;
    for (int d = std::max(inner_ - 1, 0); d < block.count.rank(); ++d) {
      run_ *= block.count[d];
    }
  }

  void read() {
    if (block_.count.numel() > 0) {
      visit(0, 0, 0);
    }
  }

 private:
  bool is_whole(int dim) const { return block_.count[dim] == block_.piece[dim] && block_.count[dim] == shape_[dim]; }

  static int64_t stride(const Shape& shape, int dim) {
    int64_t size = 1;
    for (int d = dim + 1; d < shape.rank(); ++d) {
      size *= shape[d];
    }
    return size;
  }

  // The rows of dimension `dim` and what is inside, of which the elements begin at `in_piece` and `in_destination`.
  void visit(int dim, int64_t in_piece, int64_t in_destination) {
    if (block_.count.rank() > 0 && dim < block_.count.rank()) {
      in_piece += block_.offset[static_cast<size_t>(dim)] * stride(block_.piece, dim);
      in_destination += block_.destination_offset[static_cast<size_t>(dim)] * stride(shape_, dim);
    }
    if (dim >= inner_ - 1) {  // one run of elements on both sides
      read_bytes(file_, position(in_piece), std::span(data_ + in_destination * element_, static_cast<size_t>(run_)));
      return;
    }
    if (dim == inner_ - 2 && gather(dim, in_piece, in_destination)) {
      return;
    }
    for (int64_t i = 0; i < block_.count[dim]; ++i) {
      visit(dim + 1, in_piece + i * stride(block_.piece, dim), in_destination + i * stride(shape_, dim));
    }
  }

  // Runs of one dimension, with what lies between them.
  bool gather(int dim, int64_t in_piece, int64_t in_destination) {
    const int64_t rows = block_.count[dim];
    const int64_t from = stride(block_.piece, dim) * element_;
    const int64_t to = stride(shape_, dim) * element_;
    if (from > kTogether || from > 16 * run_) {
      return false;
    }
    const int64_t first = block_.offset[static_cast<size_t>(dim) + 1] * stride(block_.piece, dim + 1);
    const int64_t first_to = block_.destination_offset[static_cast<size_t>(dim) + 1] * stride(shape_, dim + 1);
    const int64_t batch = std::max<int64_t>(1, kTogether / from);
    for (int64_t row = 0; row < rows; row += batch) {
      const int64_t last = std::min(row + batch, rows) - 1;
      buffer_.resize(static_cast<size_t>((last - row) * from + run_));
      read_bytes(file_, position(in_piece + first) + row * from, buffer_);
      for (int64_t i = row; i <= last; ++i) {
        std::memcpy(data_ + (in_destination + first_to) * element_ + i * to, buffer_.data() + (i - row) * from, static_cast<size_t>(run_));
      }
    }
    return true;
  }

  int64_t position(int64_t element) const { return block_.file_offset + element * element_; }

  const FileDescriptor& file_;
  const FileBlock& block_;
  std::byte* data_;
  Shape shape_;
  int64_t element_;
  int inner_ = 0;     // dimensions from here on lie together in piece and destination
  int64_t run_ = 0;   // bytes that do, with the dimension before them
  std::vector<std::byte> buffer_;
};

}  // namespace

void read_bytes(const FileDescriptor& file, int64_t offset, std::span<std::byte> bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got = ::pread(file.number(), bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw_io_error(ErrorKind::Checkpoint, fmt::format("cannot read {} bytes at {}: {}", bytes.size(), offset, describe_errno(errno)));
    }
    if (got == 0) {
      throw CheckpointError("the file ends before byte {}", offset + narrow<int64_t>(bytes.size()));
    }
    done += static_cast<size_t>(got);
  }
}

void read_from_file(const FileDescriptor& file, const FileBlock& block, const TensorView& destination) {
  LH_CHECK(block.piece.rank() == block.count.rank() && destination.rank() == block.count.rank(), "a block of {} from {} into {}",
           block.count.to_string(), block.piece.to_string(), destination.to_string());
  BlockReader(file, block, destination).read();
}

}  // namespace longhaul
