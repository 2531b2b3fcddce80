// Datasets, blocks of them, and virtual datasets; see hdf5.h.
#include <array>
#include <bit>
#include <limits>

#include "base/cast.h"
#include "storage/hdf5.h"

namespace longhaul::hdf5 {

static_assert(std::endian::native == std::endian::little, "memory and file have the same byte order and types");

namespace {

constexpr const char* kDTypeAttribute = "dtype";
using Extent = std::array<hsize_t, Shape::kMaxRank>;

hid_t stored_type(DType dtype) {
  switch (dtype) {
    case DType::F64: return H5T_IEEE_F64LE;
    case DType::F32: return H5T_IEEE_F32LE;
    case DType::BF16: return H5T_STD_U16LE;
    case DType::I64: return H5T_STD_I64LE;
    case DType::I32: return H5T_STD_I32LE;
    case DType::U8: return H5T_STD_U8LE;
  }
  throw InternalError("no HDF5 type for dtype {}", static_cast<int>(dtype));
}

Extent extent_of(const Shape& shape) {
  Extent extent{};
  for (int d = 0; d < shape.rank(); ++d) {
    extent[static_cast<size_t>(d)] = static_cast<hsize_t>(shape[d]);
  }
  return extent;
}

Dataspace space_of(const Shape& shape) {
  if (shape.rank() == 0) {
    return Dataspace(LH_HDF5(H5Screate(H5S_SCALAR)));
  }
  return Dataspace(LH_HDF5(H5Screate_simple(shape.rank(), extent_of(shape).data(), nullptr)));
}

// Selects the block of `count` elements at `offset`. A scalar, or nothing to select, needs none.
void select_block(const Dataspace& space, std::span<const int64_t> offset, const Shape& count) {
  LH_CHECK(narrow<int>(offset.size()) == count.rank(), "a block of {} needs {} offsets, got {}", count.to_string(), count.rank(),
           offset.size());
  if (count.rank() == 0) {
    return;
  }
  if (count.numel() == 0) {
    LH_HDF5(H5Sselect_none(space.id()));
    return;
  }
  Extent start{};
  for (size_t d = 0; d < offset.size(); ++d) {
    start[d] = narrow<hsize_t>(offset[d]);
  }
  LH_HDF5(H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start.data(), nullptr, extent_of(count).data(), nullptr));
  if (LH_HDF5(H5Sselect_valid(space.id())) <= 0) {
    throw CheckpointError("a block of {} at [{}] reaches outside the dataset", count.to_string(), fmt::join(offset, ", "));
  }
}

std::string name_of(const Dataset& dataset) {
  std::array<char, 1024> text{};
  return H5Iget_name(dataset.id(), text.data(), text.size()) < 0 ? "?" : std::string(text.data());
}

void expect_host(std::string_view action, const TensorView& tensor) {
  LH_CHECK(tensor.is_present() && tensor.device().kind == DeviceKind::Cpu && tensor.is_contiguous(),
           "only a contiguous CPU tensor can be {}: {}", action, tensor.to_string());
}

// HDF5 refuses a null buffer even where there is nothing to transfer.
void* buffer_of(const TensorView& tensor, std::byte& stand_in) { return tensor.raw() == nullptr ? &stand_in : tensor.raw(); }

PropertyList link_properties() {
  PropertyList list(LH_HDF5(H5Pcreate(H5P_LINK_CREATE)));
  LH_HDF5(H5Pset_create_intermediate_group(list.id(), 1));
  return list;
}

void mark_dtype(const Dataset& dataset, DType dtype) {
  if (dtype != DType::BF16) {
    return;
  }
  const std::string text(longhaul::to_string(dtype));
  const Datatype type(LH_HDF5(H5Tcopy(H5T_C_S1)));
  LH_HDF5(H5Tset_size(type.id(), text.size() + 1));
  LH_HDF5(H5Tset_cset(type.id(), H5T_CSET_UTF8));
  const Dataspace space(LH_HDF5(H5Screate(H5S_SCALAR)));
  const Attribute attribute(LH_HDF5(H5Acreate2(dataset.id(), kDTypeAttribute, type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT)));
  LH_HDF5(H5Awrite(attribute.id(), type.id(), text.c_str()));
}

DType dtype_of(const Dataset& dataset) {
  const Datatype type(LH_HDF5(H5Dget_type(dataset.id())));
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::I64, DType::I32, DType::U8}) {
    const bool is_marked = LH_HDF5(H5Aexists(dataset.id(), kDTypeAttribute)) > 0;
    if (LH_HDF5(H5Tequal(type.id(), stored_type(dtype))) > 0 && is_marked == (dtype == DType::BF16)) {
      return dtype;
    }
  }
  throw CheckpointError("the dataset {} has a type that Longhaul does not write", name_of(dataset));
}

// Every element is written once, by us; equal tensors make equal files.
Dataset create_written_once(const File& file, std::string_view name, const TensorSpec& spec, const PropertyList& create) {
  const Dataspace space = space_of(spec.shape);
  LH_HDF5(H5Pset_fill_time(create.id(), H5D_FILL_TIME_NEVER));
  LH_HDF5(H5Pset_obj_track_times(create.id(), false));
  const PropertyList link = link_properties();
  Dataset dataset(LH_HDF5(H5Dcreate2(file.id(), std::string(name).c_str(), stored_type(spec.dtype), space.id(), link.id(),
                                     create.id(), H5P_DEFAULT)));
  mark_dtype(dataset, spec.dtype);
  return dataset;
}

void set_fill_value(const PropertyList& list, DType dtype) {
  const auto set = [&](const auto& value) { LH_HDF5(H5Pset_fill_value(list.id(), stored_type(dtype), &value)); };
  switch (dtype) {
    case DType::F64: return set(std::numeric_limits<double>::quiet_NaN());
    case DType::F32: return set(std::numeric_limits<float>::quiet_NaN());
    case DType::BF16: return set(BFloat16(std::numeric_limits<float>::quiet_NaN()).bits);
    case DType::I64: return set(std::numeric_limits<int64_t>::min());
    case DType::I32: return set(std::numeric_limits<int32_t>::min());
    case DType::U8: return set(std::numeric_limits<uint8_t>::max());
  }
}

}  // namespace

Dataset create_dataset(const File& file, std::string_view name, const TensorSpec& spec) {
  const PropertyList create(LH_HDF5(H5Pcreate(H5P_DATASET_CREATE)));
  LH_HDF5(H5Pset_layout(create.id(), H5D_CONTIGUOUS));
  LH_HDF5(H5Pset_alloc_time(create.id(), H5D_ALLOC_TIME_EARLY));
  return create_written_once(file, name, spec, create);
}

Dataset create_compressed_dataset(const File& file, std::string_view name, const TensorSpec& spec, const Shape& chunk) {
  register_zstd_filter();
  const PropertyList create(LH_HDF5(H5Pcreate(H5P_DATASET_CREATE)));
  LH_HDF5(H5Pset_chunk(create.id(), chunk.rank(), extent_of(chunk).data()));
  if (size_of(spec.dtype) > 1) {
    LH_HDF5(H5Pset_shuffle(create.id()));
  }
  LH_HDF5(H5Pset_filter(create.id(), kZstdFilter, H5Z_FLAG_MANDATORY, 0, nullptr));
  return create_written_once(file, name, spec, create);
}

void write_dataset(const File& file, std::string_view name, const TensorView& tensor) {
  expect_host("written", tensor);
  const Dataset dataset = create_dataset(file, name, tensor.spec());
  std::byte stand_in{};
  LH_HDF5(H5Dwrite(dataset.id(), stored_type(tensor.dtype()), H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer_of(tensor, stand_in)));
}

void write_block(const Dataset& dataset, std::span<const int64_t> offset, const TensorView& block) {
  expect_host("written", block);
  const DType dtype = dtype_of(dataset);
  LH_CHECK(dtype == block.dtype(), "a block of {} does not fit into a dataset of {}", block.to_string(), longhaul::to_string(dtype));
  const Dataspace target(LH_HDF5(H5Dget_space(dataset.id())));
  const Dataspace memory = space_of(block.shape());
  select_block(target, offset, block.shape());
  std::byte stand_in{};
  LH_HDF5(H5Dwrite(dataset.id(), stored_type(dtype), memory.id(), target.id(), H5P_DEFAULT, buffer_of(block, stand_in)));
}

bool has_object(const File& file, std::string_view name) {
  // H5Lexists fails for "a/b" where "a" does not exist, so every step of the path is asked for.
  for (size_t end = name.find('/', 1);; end = name.find('/', end + 1)) {
    const std::string prefix(name.substr(0, end));
    if (LH_HDF5(H5Lexists(file.id(), prefix.c_str(), H5P_DEFAULT)) <= 0) {
      return false;
    }
    if (end == std::string_view::npos) {
      return true;
    }
  }
}

Dataset open_dataset(const File& file, std::string_view name) {
  return Dataset(LH_HDF5(H5Dopen2(file.id(), std::string(name).c_str(), H5P_DEFAULT)));
}

TensorSpec dataset_spec(const Dataset& dataset) {
  const Dataspace space(LH_HDF5(H5Dget_space(dataset.id())));
  const int rank = LH_HDF5(H5Sget_simple_extent_ndims(space.id()));
  if (rank > Shape::kMaxRank) {
    throw CheckpointError("the dataset {} has {} dimensions; Longhaul's tensors have at most {}", name_of(dataset), rank, Shape::kMaxRank);
  }
  Extent extent{};
  LH_HDF5(H5Sget_simple_extent_dims(space.id(), extent.data(), nullptr));
  TensorSpec spec{.dtype = dtype_of(dataset)};
  for (int d = 0; d < rank; ++d) {
    spec.shape.append(narrow<int64_t>(extent[static_cast<size_t>(d)]));
  }
  return spec;
}

void read_dataset(const File& file, std::string_view name, const TensorView& destination) {
  expect_host("read into", destination);
  const Dataset dataset = open_dataset(file, name);
  const TensorSpec spec = dataset_spec(dataset);
  if (spec != destination.spec()) {
    throw CheckpointError("the dataset {} is {}{}, wanted {}", name, longhaul::to_string(spec.dtype), spec.shape.to_string(),
                          destination.to_string());
  }
  std::byte stand_in{};
  LH_HDF5(H5Dread(dataset.id(), stored_type(spec.dtype), H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer_of(destination, stand_in)));
}

void read_block(const Dataset& dataset, const BlockRead& block, const TensorView& destination) {
  expect_host("read into", destination);
  const TensorSpec spec = dataset_spec(dataset);
  if (spec.dtype != destination.dtype()) {
    throw CheckpointError("the dataset {} holds {}, wanted {}", name_of(dataset), longhaul::to_string(spec.dtype),
                          longhaul::to_string(destination.dtype()));
  }
  LH_CHECK(spec.shape.rank() == block.count.rank() && destination.rank() == block.count.rank(),
           "a block of {} from {} into {}", block.count.to_string(), spec.shape.to_string(), destination.to_string());
  const Dataspace source(LH_HDF5(H5Dget_space(dataset.id())));
  const Dataspace memory = space_of(destination.shape());
  select_block(source, block.offset, block.count);
  select_block(memory, block.destination_offset, block.count);
  std::byte stand_in{};
  LH_HDF5(H5Dread(dataset.id(), stored_type(spec.dtype), memory.id(), source.id(), H5P_DEFAULT, buffer_of(destination, stand_in)));
}

int64_t byte_offset(const Dataset& dataset) {
  silence_errors();
  const haddr_t offset = H5Dget_offset(dataset.id());
  return offset == HADDR_UNDEF ? -1 : narrow<int64_t>(offset);
}

void write_virtual_dataset(const File& file, std::string_view name, const TensorSpec& whole, std::span<const VirtualPiece> pieces) {
  const PropertyList create(LH_HDF5(H5Pcreate(H5P_DATASET_CREATE)));
  const Dataspace space = space_of(whole.shape);
  if (whole.shape.numel() > 0) {
    LH_HDF5(H5Pset_layout(create.id(), H5D_VIRTUAL));
    set_fill_value(create, whole.dtype);
    for (const VirtualPiece& piece : pieces) {
      const Dataspace source = space_of(piece.shape);
      select_block(space, piece.offset, piece.shape);
      LH_HDF5(H5Pset_virtual(create.id(), space.id(), piece.file.c_str(), piece.dataset.c_str(), source.id()));
    }
    LH_HDF5(H5Sselect_all(space.id()));
  }
  const PropertyList link = link_properties();
  const Dataset dataset(LH_HDF5(H5Dcreate2(file.id(), std::string(name).c_str(), stored_type(whole.dtype), space.id(), link.id(),
                                           create.id(), H5P_DEFAULT)));
  mark_dtype(dataset, whole.dtype);
}

}  // namespace longhaul::hdf5
