// See safetensors.h.
#include "storage/safetensors.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/cast.h"
#include "storage/half.h"
#include "storage/safetensors_header.h"

namespace longhaul {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and is read in place");

namespace {

constexpr std::array<std::pair<std::string_view, int64_t>, 20> kDTypeBits{{
    {"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8},  {"F8_E4M3", 8},  {"F8_E8M0", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16}, {"BF16", 16}, {"I32", 32},    {"U32", 32},     {"F32", 32},    {"I64", 64},
    {"U64", 64},    {"F64", 64}, {"C64", 64}, {"F4", 4},       {"F6_E2M3", 6},  {"F6_E3M2", 6},
}};

// Calls each(index, value of type T at that index) for all elements; the data need not be aligned.
template <class T, class Each>
void for_each_element(const SafetensorsEntry& entry, Each&& each) {
  const int64_t count = entry.numel();
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, entry.data.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    each(i, value);
  }
}

// False when the entry is not floating point.
template <class To>
bool convert_float(const SafetensorsEntry& entry, To* destination) {
  if (entry.dtype == "F64") {
    for_each_element<double>(entry, [=](int64_t i, double v) { destination[i] = static_cast<To>(v); });
    return true;
  }
  if (entry.dtype == "F32") {
    for_each_element<float>(entry, [=](int64_t i, float v) { destination[i] = static_cast<To>(v); });
    return true;
  }
  if (entry.dtype == "BF16") {
    for_each_element<BFloat16>(entry, [=](int64_t i, BFloat16 v) { destination[i] = static_cast<To>(static_cast<float>(v)); });
    return true;
  }
  if (entry.dtype == "F16") {
    for_each_element<uint16_t>(entry, [=](int64_t i, uint16_t v) { destination[i] = static_cast<To>(half_to_float(v)); });
    return true;
  }
  return false;
}

// False when the entry is not of an integer type that fits into 63 bits and a sign.
template <class Each>
bool convert_integer(const SafetensorsEntry& entry, Each&& each) {
  const auto visit = [&](auto zero) { for_each_element<decltype(zero)>(entry, each); };
  if (entry.dtype == "I64") {
    visit(int64_t{});
  } else if (entry.dtype == "I32") {
    visit(int32_t{});
  } else if (entry.dtype == "U32") {
    visit(uint32_t{});
  } else if (entry.dtype == "I16") {
    visit(int16_t{});
  } else if (entry.dtype == "U16") {
    visit(uint16_t{});
  } else if (entry.dtype == "I8") {
    visit(int8_t{});
  } else if (entry.dtype == "U8" || entry.dtype == "BOOL") {
    visit(uint8_t{});
  } else {
    return false;
  }
  return true;
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

bool same_shape(const std::vector<int64_t>& shape, const Shape& other) {
  if (static_cast<int>(shape.size()) != other.rank()) {
    return false;
  }
  for (int d = 0; d < other.rank(); ++d) {
    if (shape[static_cast<size_t>(d)] != other[d]) {
      return false;
    }
  }
  return true;
}

}  // namespace

int64_t SafetensorsEntry::numel() const noexcept {
  int64_t count = 1;
  for (const int64_t size : shape) {
    count *= size;
  }
  return count;
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path)
    : path_(std::move(path)), mapping_(path_, ErrorKind::Conversion) {
  SafetensorsHeader header;
  try {
    header = parse_safetensors_header(mapping_.bytes());
  } catch (const ConversionError& error) {
    fail(error.what());
  }
  metadata_ = std::move(header.metadata);
  for (auto& [name, range] : header.tensors) {
    const auto data = mapping_.bytes().subspan(static_cast<size_t>(header.data_offset + range.begin),
                                               static_cast<size_t>(range.end - range.begin));
    entries_.emplace(name, SafetensorsEntry{.dtype = std::move(range.dtype), .shape = std::move(range.shape), .data = data});
  }
}

void SafetensorsFile::fail(std::string_view reason) const {
  throw ConversionError("{} is not a usable safetensors file: {}", path_.string(), reason);
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> result;
  for (const auto& [name, entry] : entries_) {
    result.push_back(name);
  }
  return result;
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : &it->second;
}

const SafetensorsEntry& SafetensorsFile::at(std::string_view name) const {
  const SafetensorsEntry* entry = find(name);
  if (entry == nullptr) {
    throw ConversionError("{} has no tensor \"{}\" among its {}", path_.string(), name, entries_.size());
  }
  return *entry;
}

std::vector<double> SafetensorsFile::read_as_f64(std::string_view name) const {
  const SafetensorsEntry& entry = at(name);
  std::vector<double> values(static_cast<size_t>(entry.numel()));
  if (convert_float(entry, values.data())) {
    return values;
  }
  constexpr int64_t kExact = int64_t{1} << 53;  // beyond it a double skips whole numbers
  bool is_exact = true;
  const bool is_integer = convert_integer(entry, [&](int64_t i, int64_t value) {
    is_exact = is_exact && value <= kExact && value >= -kExact;
    values[static_cast<size_t>(i)] = static_cast<double>(value);
  });
  if (!is_integer || !is_exact) {
    throw ConversionError("{}: tensor \"{}\" of type {} cannot be read as f64 without loss", path_.string(), name, entry.dtype);
  }
  return values;
}

std::vector<int64_t> SafetensorsFile::read_as_i64(std::string_view name) const {
  const SafetensorsEntry& entry = at(name);
  std::vector<int64_t> values(static_cast<size_t>(entry.numel()));
  if (!convert_integer(entry, [&](int64_t i, int64_t value) { values[static_cast<size_t>(i)] = value; })) {
    throw ConversionError("{}: tensor \"{}\" is of type {}, wanted integers", path_.string(), name, entry.dtype);
  }
  return values;
}

void SafetensorsFile::read_into(std::string_view name, const TensorView& destination) const {
  const SafetensorsEntry& entry = at(name);
  LH_CHECK(destination.device().kind == DeviceKind::Cpu && destination.is_contiguous(),
           "\"{}\" can only be read into a contiguous CPU tensor", name);
  if (!same_shape(entry.shape, destination.shape())) {
    throw ConversionError("{}: tensor \"{}\" has shape {}, wanted {}", path_.string(), name, shape_text(entry.shape),
                          destination.shape().to_string());
  }
  if (destination.dtype() == DType::F32 && convert_float(entry, destination.data<float>())) {
    return;
  }
  if (destination.dtype() == DType::F64 && convert_float(entry, destination.data<double>())) {
    return;
  }
  if (entry.dtype != safetensors_dtype(destination.dtype())) {
    throw ConversionError("{}: tensor \"{}\" is of type {} and cannot be read as {}", path_.string(), name, entry.dtype,
                          to_string(destination.dtype()));
  }
  if (!entry.data.empty()) {
    std::memcpy(destination.raw(), entry.data.data(), entry.data.size());
  }
}

int64_t safetensors_bits(std::string_view dtype) noexcept {
  for (const auto& [name, bits] : kDTypeBits) {
    if (name == dtype) {
      return bits;
    }
  }
  return 0;
}

std::string_view safetensors_dtype(DType dtype) noexcept {
  switch (dtype) {
    case DType::F64: return "F64";
    case DType::F32: return "F32";
    case DType::BF16: return "BF16";
    case DType::I64: return "I64";
    case DType::I32: return "I32";
    case DType::U8: return "U8";
  }
  return "";
}

}  // namespace longhaul
