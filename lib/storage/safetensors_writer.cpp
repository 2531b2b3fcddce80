// See safetensors_writer.h.
#include "storage/safetensors_writer.h"

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/cast.h"
#include "storage/safetensors.h"
#include "storage/safetensors_header.h"

namespace longhaul {

namespace {

int64_t bytes_of(const SafetensorsDeclaration& declaration) {
  int64_t bits = safetensors_bits(declaration.dtype);
  if (bits == 0) {
    throw ConversionError("tensor \"{}\": safetensors knows no dtype \"{}\"", declaration.name, declaration.dtype);
  }
  for (const int64_t size : declaration.shape) {
    if (size < 0 || __builtin_mul_overflow(bits, size, &bits)) {
      throw ConversionError("tensor \"{}\" has an impossible shape", declaration.name);
    }
  }
  if (bits % 8 != 0) {
    throw ConversionError("tensor \"{}\" does not fill whole bytes", declaration.name);
  }
  return bits / 8;
}

// Compact JSON, padded with spaces so that the data begins at a multiple of 8 bytes. Written entry by entry: a document
// that keeps the order of its keys searches them at every insertion.
std::string header_text(const std::vector<SafetensorsDeclaration>& declarations, const std::vector<int64_t>& bytes,
                        const std::map<std::string, std::string>& metadata) {
  using nlohmann::json;
  std::string text = "{";
  if (!metadata.empty()) {
    text += fmt::format("\"__metadata__\":{},", json(metadata).dump());
  }
  int64_t position = 0;
  for (size_t i = 0; i < declarations.size(); ++i) {
    const SafetensorsDeclaration& declaration = declarations[i];
    text += fmt::format("{}:{{\"dtype\":{},\"shape\":{},\"data_offsets\":[{},{}]}},", json(declaration.name).dump(),
                        json(declaration.dtype).dump(), json(declaration.shape).dump(), position, position + bytes[i]);
    position += bytes[i];
  }
  if (text.back() == ',') {
    text.pop_back();
  }
  text += '}';
  text.resize(static_cast<size_t>(round_up(narrow<int64_t>(text.size()), 8)), ' ');
  if (narrow<int64_t>(text.size()) > kSafetensorsMaxHeaderBytes) {
    throw ConversionError("{} tensors need a header of {} bytes, more than the format's {}; write several files",
                          declarations.size(), text.size(), kSafetensorsMaxHeaderBytes);
  }
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<SafetensorsDeclaration> declarations,
                                     const std::map<std::string, std::string>& metadata)
    : file_(std::move(path), ErrorKind::Conversion), declarations_(std::move(declarations)) {
  std::set<std::string_view> names{"__metadata__"};
  for (const SafetensorsDeclaration& declaration : declarations_) {
    if (!names.insert(declaration.name).second) {
      throw ConversionError("the name \"{}\" cannot be written: it is reserved or given twice", declaration.name);
    }
    bytes_.push_back(bytes_of(declaration));
  }
  const std::string header = header_text(declarations_, bytes_, metadata);
  const uint64_t length = header.size();
  std::array<char, sizeof(length)> prefix{};
  std::memcpy(prefix.data(), &length, sizeof(length));
  file_.write(std::string_view(prefix.data(), prefix.size()));
  file_.write(header);
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> data) {
  const size_t current = next_;
  write_part(name, data);
  LH_CHECK(next_ == current + 1, "tensor \"{}\" was declared with {} bytes, got {}", name, bytes_[current], data.size());
}

void SafetensorsWriter::write_part(std::string_view name, std::span<const std::byte> part) {
  LH_CHECK(next_ < declarations_.size() && declarations_[next_].name == name, "tensor \"{}\" is written out of order", name);
  parts_bytes_ += narrow<int64_t>(part.size());
  LH_CHECK(parts_bytes_ <= bytes_[next_], "tensor \"{}\" was declared with {} bytes, got {}", name, bytes_[next_], parts_bytes_);
  file_.write(part);
  if (parts_bytes_ == bytes_[next_]) {
    ++next_;
    parts_bytes_ = 0;
  }
}

void SafetensorsWriter::write(std::string_view name, const TensorView& tensor) {
  LH_CHECK(tensor.device().kind == DeviceKind::Cpu && tensor.is_contiguous(),
           "\"{}\" can only be written from a contiguous CPU tensor", name);
  LH_CHECK(next_ < declarations_.size() && declarations_[next_].dtype == safetensors_dtype(tensor.dtype()),
           "tensor \"{}\" is not of the declared dtype: {}", name, tensor.to_string());
  write(name, std::span(static_cast<const std::byte*>(tensor.raw()), static_cast<size_t>(tensor.bytes())));
}

void SafetensorsWriter::finish() {
  LH_CHECK(next_ == declarations_.size(), "{} of {} declared tensors were written", next_, declarations_.size());
  file_.publish();
}

}  // namespace longhaul
