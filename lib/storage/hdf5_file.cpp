// Files and attributes; see hdf5.h.
#include "storage/hdf5.h"

namespace longhaul::hdf5 {

namespace {

PropertyList access_properties() {
  PropertyList list(LH_HDF5(H5Pcreate(H5P_FILE_ACCESS)));
  LH_HDF5(H5Pset_fclose_degree(list.id(), H5F_CLOSE_STRONG));
  // Virtual datasets need 1.10; compact new-style groups cost a fraction of the old ones, and attributes may pass 64 KiB.
  LH_HDF5(H5Pset_libver_bounds(list.id(), H5F_LIBVER_V110, H5F_LIBVER_LATEST));
  // No block from which small datasets are cut: all lie in the file in the order in which they are created.
  LH_HDF5(H5Pset_small_data_block_size(list.id(), 0));
#if H5_VERSION_GE(1, 10, 7)
  LH_HDF5(H5Pset_file_locking(list.id(), true, true));
#endif
  return list;
}

File checked_file(hid_t id, std::string_view action, const std::filesystem::path& path) {
  if (id >= 0) {
    return File(id);
  }
  const std::string reason = error_stack_text();
  const bool is_lock = reason.find("lock") != std::string::npos;
  throw CheckpointError("cannot {} {}: {}{}", action, path.string(), reason,
                        is_lock ? "; another process has the file open, or the file system refuses locks: in that case set "
                                  "HDF5_USE_FILE_LOCKING=FALSE in the environment"
                                : "");
}

Object open_object(const File& file, std::string_view name) {
  return Object(LH_HDF5(H5Oopen(file.id(), std::string(name).c_str(), H5P_DEFAULT)));
}

void write_scalar(const File& file, std::string_view name, std::string_view attribute, hid_t type, const void* value) {
  const Object object = open_object(file, name);
  const Dataspace space(LH_HDF5(H5Screate(H5S_SCALAR)));
  const Attribute created(
      LH_HDF5(H5Acreate2(object.id(), std::string(attribute).c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT)));
  LH_HDF5(H5Awrite(created.id(), type, value));
}

Attribute open_scalar(const File& file, std::string_view name, std::string_view attribute, H5T_class_t wanted) {
  const Object object = open_object(file, name);
  Attribute opened(LH_HDF5(H5Aopen(object.id(), std::string(attribute).c_str(), H5P_DEFAULT)));
  const Datatype type(LH_HDF5(H5Aget_type(opened.id())));
  const Dataspace space(LH_HDF5(H5Aget_space(opened.id())));
  if (H5Tget_class(type.id()) != wanted || H5Sget_simple_extent_npoints(space.id()) != 1) {
    throw CheckpointError("the attribute \"{}\" of \"{}\" is not a single value of the expected type", attribute, name);
  }
  return opened;
}

}  // namespace

File create_file(const std::filesystem::path& path) {
  const PropertyList access = access_properties();
  silence_errors();
  return checked_file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id()), "create", path);
}

File open_file(const std::filesystem::path& path) {
  const PropertyList access = access_properties();
  silence_errors();
  return checked_file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), "open", path);
}

void write_attribute(const File& file, std::string_view name, std::string_view attribute, std::string_view value) {
  const Datatype type(LH_HDF5(H5Tcopy(H5T_C_S1)));
  LH_HDF5(H5Tset_size(type.id(), value.size() + 1));  // HDF5 has no strings of length zero
  LH_HDF5(H5Tset_cset(type.id(), H5T_CSET_UTF8));
  write_scalar(file, name, attribute, type.id(), std::string(value).c_str());
}

void write_attribute(const File& file, std::string_view name, std::string_view attribute, int64_t value) {
  write_scalar(file, name, attribute, H5T_STD_I64LE, &value);
}

void write_attribute(const File& file, std::string_view name, std::string_view attribute, double value) {
  write_scalar(file, name, attribute, H5T_IEEE_F64LE, &value);
}

bool has_attribute(const File& file, std::string_view name, std::string_view attribute) {
  const Object object = open_object(file, name);
  return LH_HDF5(H5Aexists(object.id(), std::string(attribute).c_str())) > 0;
}

std::string read_string_attribute(const File& file, std::string_view name, std::string_view attribute) {
  const Attribute opened = open_scalar(file, name, attribute, H5T_STRING);
  const Datatype type(LH_HDF5(H5Aget_type(opened.id())));
  if (LH_HDF5(H5Tis_variable_str(type.id())) > 0) {
    throw CheckpointError("the attribute \"{}\" of \"{}\" is a string of variable length; Longhaul writes fixed ones", attribute, name);
  }
  std::string value(H5Tget_size(type.id()), '\0');
  LH_HDF5(H5Aread(opened.id(), type.id(), value.data()));
  value.resize(value.find('\0') == std::string::npos ? value.size() : value.find('\0'));
  return value;
}

int64_t read_i64_attribute(const File& file, std::string_view name, std::string_view attribute) {
  const Attribute opened = open_scalar(file, name, attribute, H5T_INTEGER);
  int64_t value = 0;
  LH_HDF5(H5Aread(opened.id(), H5T_NATIVE_INT64, &value));
  return value;
}

double read_f64_attribute(const File& file, std::string_view name, std::string_view attribute) {
  const Attribute opened = open_scalar(file, name, attribute, H5T_FLOAT);
  double value = 0;
  LH_HDF5(H5Aread(opened.id(), H5T_NATIVE_DOUBLE, &value));
  return value;
}

std::string library_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  LH_HDF5(H5get_libversion(&major, &minor, &release));
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace longhaul::hdf5
