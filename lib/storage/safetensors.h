// Reader of the safetensors format: 8 bytes little-endian length N, N bytes of JSON that name each tensor's dtype, shape
// and byte range, then the data, row-major and little-endian. The file comes from outside, so everything is checked before
// any of it is used: a damaged or hostile file is a ConversionError that says why, never a crash or a large allocation.
// The writer is in safetensors_writer.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/mapping.h"
#include "tensor/tensor_view.h"

namespace longhaul {

struct SafetensorsEntry {
  std::string dtype;               // "F32", "BF16", "I64", "U8", "F8_E4M3", …
  std::vector<int64_t> shape;      // empty for a scalar; may be of any rank
  std::span<const std::byte> data;  // in the mapped file; not aligned

  [[nodiscard]] int64_t numel() const noexcept;
};

class SafetensorsFile {
 public:
  // Maps the file and validates the whole header: size at most 100 MB, a JSON object without duplicate keys, known dtypes,
  // sizes that agree with the shapes, byte ranges that fill the data without overlap or hole.
  explicit SafetensorsFile(std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  // In alphabetical order.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] const std::map<std::string, SafetensorsEntry, std::less<>>& entries() const noexcept { return entries_; }
  [[nodiscard]] const std::map<std::string, std::string, std::less<>>& metadata() const noexcept { return metadata_; }
  // Null when there is none of that name.
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const noexcept;
  // ConversionError when there is none of that name.
  [[nodiscard]] const SafetensorsEntry& at(std::string_view name) const;

  // All elements, row-major. F64, F32, F16, BF16 and integers that a double holds exactly; ConversionError otherwise.
  [[nodiscard]] std::vector<double> read_as_f64(std::string_view name) const;
  // All elements of an integer or BOOL tensor.
  [[nodiscard]] std::vector<int64_t> read_as_i64(std::string_view name) const;
  // Into a contiguous CPU tensor of the same shape. Floating point (F64, F32, F16, BF16) goes to f64 or f32, rounded to
  // nearest where the destination is narrower; every other destination needs the same type in the file, and is copied
  // bit for bit: bf16 from BF16, i64 from I64, i32 from I32, u8 from U8.
  void read_into(std::string_view name, const TensorView& destination) const;

 private:
  [[noreturn]] void fail(std::string_view reason) const;

  std::filesystem::path path_;
  ReadOnlyMapping mapping_;
  std::map<std::string, SafetensorsEntry, std::less<>> entries_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

// Bits of one element, or 0 for a dtype that the format does not know. F4 and the F6 types are not whole bytes.
[[nodiscard]] int64_t safetensors_bits(std::string_view dtype) noexcept;
// The format's name of our type.
[[nodiscard]] std::string_view safetensors_dtype(DType dtype) noexcept;

}  // namespace longhaul
