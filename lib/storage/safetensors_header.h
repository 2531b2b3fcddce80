// The JSON header of a safetensors file, parsed and validated on its own so that it can be tested without files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace longhaul {

struct SafetensorsRange {
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the start of the data
  int64_t end = 0;
};

struct SafetensorsHeader {
  int64_t data_offset = 0;  // bytes from the start of the file
  std::map<std::string, SafetensorsRange, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
};

inline constexpr int64_t kSafetensorsMaxHeaderBytes = 100'000'000;

// `file` is the whole file. Throws ConversionError with the reason alone; the caller adds the file's name.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file);

}  // namespace longhaul
