// Compressed chunks of datasets, and the filter with which HDF5 itself reads them in this process; see hdf5.h.
#include <array>
#include <cstdlib>

#include "base/cast.h"
#include "storage/chunk_codec.h"
#include "storage/hdf5.h"

namespace longhaul::hdf5 {

namespace {

std::span<std::byte> bytes_at(void* data, size_t size) { return {static_cast<std::byte*>(data), size}; }

// H5Z_func_t. HDF5 owns *buffer, by malloc and free; 0 is failure. Only what this program wrote is read, so chunks are of a size
// that zstd's frame states.
size_t zstd_filter(unsigned flags, size_t, const unsigned*, size_t bytes, size_t* capacity, void** buffer) {
  const std::span<const std::byte> source = bytes_at(*buffer, bytes);
  const int64_t size = (flags & H5Z_FLAG_REVERSE) != 0 ? frame_content_bytes(source) : encoded_bound(narrow<int64_t>(bytes));
  if (size < 0) {
    return 0;
  }
  void* result = std::malloc(narrow<size_t>(std::max<int64_t>(size, 1)));  // NOLINT: HDF5 frees it
  if (result == nullptr) {
    return 0;
  }
  size_t used = narrow<size_t>(size);
  bool is_good = true;
  if ((flags & H5Z_FLAG_REVERSE) != 0) {
    is_good = decompress_frame(source, bytes_at(result, used));
  } else {
    used = narrow<size_t>(compress_frame(source, bytes_at(result, used)));
  }
  if (!is_good) {
    std::free(result);  // NOLINT
    return 0;
  }
  std::free(*buffer);  // NOLINT
  *buffer = result;
  *capacity = narrow<size_t>(size);
  return used;
}

}  // namespace

void register_zstd_filter() {
  static constexpr H5Z_class2_t kFilter = {.version = H5Z_CLASS_T_VERS, .id = kZstdFilter, .encoder_present = 1, .decoder_present = 1,
                                           .name = "zstd", .can_apply = nullptr, .set_local = nullptr, .filter = zstd_filter};
  if (LH_HDF5(H5Zfilter_avail(kZstdFilter)) == 0) {
    LH_HDF5(H5Zregister(&kFilter));
  }
}

FilePlace write_chunk(const Dataset& dataset, std::span<const int64_t> offset, std::span<const std::byte> stored) {
  std::array<hsize_t, Shape::kMaxRank> at{};
  for (size_t d = 0; d < offset.size(); ++d) {
    at[d] = narrow<hsize_t>(offset[d]);
  }
  LH_HDF5(H5Dwrite_chunk(dataset.id(), H5P_DEFAULT, 0, at.data(), stored.size(), stored.data()));
  unsigned mask = 0;
  haddr_t address = HADDR_UNDEF;
  hsize_t bytes = 0;
  LH_HDF5(H5Dget_chunk_info_by_coord(dataset.id(), at.data(), &mask, &address, &bytes));
  LH_CHECK(address != HADDR_UNDEF && bytes == stored.size() && mask == 0, "HDF5 has a chunk of {} bytes, wrote {}", bytes, stored.size());
  return {.file_offset = narrow<int64_t>(address), .bytes = narrow<int64_t>(bytes)};
}

}  // namespace longhaul::hdf5
