// See safetensors_header.h.
#include "storage/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/cast.h"
#include "base/error.h"
#include "storage/safetensors.h"

namespace longhaul {

namespace {

using nlohmann::json;

constexpr int kMaxNesting = 3;  // header, tensor, list

// Builds the document but refuses what a plain parse accepts silently: a key given twice, and nesting that the format
// has no use for.
json parse_strictly(const char* begin, const char* end) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&keys](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth >= kMaxNesting) {
        throw ConversionError("the header is nested more deeply than the format allows");
      }
      keys.resize(static_cast<size_t>(depth) + 1);
      keys.back().clear();
    }
    if (event == json::parse_event_t::key && !keys.at(static_cast<size_t>(depth) - 1).insert(parsed.get<std::string>()).second) {
      throw ConversionError("the header has the key \"{}\" twice", parsed.get<std::string>());
    }
    return true;
  };
  try {
    return json::parse(begin, end, watch);
  } catch (const json::exception& error) {
    throw ConversionError("the header is not valid JSON: {}", error.what());
  }
}

int64_t whole_number(const json& value, const std::string& tensor, const char* what) {
  if (!value.is_number_unsigned() || !std::in_range<int64_t>(value.get<uint64_t>())) {
    throw ConversionError("tensor \"{}\": {} must hold whole numbers that are not negative, got {}", tensor, what, value.dump());
  }
  return value.get<int64_t>();
}

// Bytes that the shape needs; throws when they do not fit or do not fill whole bytes.
int64_t bytes_needed(const SafetensorsRange& range, const std::string& tensor) {
  int64_t bits = safetensors_bits(range.dtype);
  for (const int64_t size : range.shape) {
    if (__builtin_mul_overflow(bits, size, &bits)) {
      throw ConversionError("tensor \"{}\": its shape overflows", tensor);
    }
  }
  if (bits % 8 != 0) {
    throw ConversionError("tensor \"{}\": {} elements of {} bits do not fill whole bytes", tensor,
                          bits / safetensors_bits(range.dtype), safetensors_bits(range.dtype));
  }
  return bits / 8;
}

SafetensorsRange parse_tensor(const std::string& name, const json& value) {
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    throw ConversionError("tensor \"{}\" must have exactly dtype, shape and data_offsets", name);
  }
  const json& dtype = value["dtype"];
  const json& shape = value["shape"];
  const json& offsets = value["data_offsets"];
  if (!dtype.is_string() || safetensors_bits(dtype.get_ref<const std::string&>()) == 0) {
    throw ConversionError("tensor \"{}\" has the unknown dtype {}", name, dtype.dump());
  }
  if (!shape.is_array()) {
    throw ConversionError("tensor \"{}\": shape must be a list", name);
  }
  if (!offsets.is_array() || offsets.size() != 2) {
    throw ConversionError("tensor \"{}\": data_offsets must be a list of two numbers", name);
  }
  SafetensorsRange range{.dtype = dtype.get<std::string>(), .shape = {}};
  for (const json& size : shape) {
    range.shape.push_back(whole_number(size, name, "shape"));
  }
  range.begin = whole_number(offsets[0], name, "data_offsets");
  range.end = whole_number(offsets[1], name, "data_offsets");
  const int64_t wanted = bytes_needed(range, name);
  if (range.end < range.begin || range.end - range.begin != wanted) {
    throw ConversionError("tensor \"{}\": its shape needs {} bytes but data_offsets are [{}, {})", name, wanted, range.begin,
                          range.end);
  }
  return range;
}

void parse_metadata(const json& value, SafetensorsHeader& header) {
  if (!value.is_object()) {
    throw ConversionError("__metadata__ must be an object");
  }
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      throw ConversionError("__metadata__ must map strings to strings; \"{}\" is {}", key, text.type_name());
    }
    header.metadata.emplace(key, text.get<std::string>());
  }
}

// The ranges must follow each other without gap and end where the file ends.
void check_coverage(const SafetensorsHeader& header, int64_t data_bytes) {
  std::vector<std::pair<const SafetensorsRange*, const std::string*>> order;
  for (const auto& [name, range] : header.tensors) {
    order.emplace_back(&range, &name);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  int64_t position = 0;
  for (const auto& [range, name] : order) {
    if (range->end > data_bytes) {
      throw ConversionError("tensor \"{}\" ends at byte {} but the file holds {} bytes of data; is it complete?", *name,
                            range->end, data_bytes);
    }
    if (range->begin != position) {
      throw ConversionError("tensor \"{}\" begins at byte {}, {} the end of the one before at {}", *name, range->begin,
                            range->begin < position ? "overlapping" : "leaving a hole after", position);
    }
    position = range->end;
  }
  if (position != data_bytes) {
    throw ConversionError("{} bytes after the last tensor belong to none", data_bytes - position);
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file) {
  const auto file_bytes = narrow<int64_t>(file.size());
  uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes)) {
    throw ConversionError("a file of {} bytes is too short for a header", file.size());
  }
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  if (header_bytes > static_cast<uint64_t>(kSafetensorsMaxHeaderBytes)) {
    throw ConversionError("the header claims {} bytes; at most {} are allowed", header_bytes, kSafetensorsMaxHeaderBytes);
  }
  SafetensorsHeader header;
  header.data_offset = 8 + static_cast<int64_t>(header_bytes);
  if (header.data_offset > file_bytes) {
    throw ConversionError("the header claims {} bytes but the file has {}; is it complete?", header_bytes, file_bytes);
  }
  const char* begin = reinterpret_cast<const char*>(file.data()) + 8;
  if (header_bytes == 0 || *begin != '{') {
    throw ConversionError("the header is not a JSON object");
  }
  const json document = parse_strictly(begin, begin + header_bytes);
  for (const auto& [name, value] : document.items()) {
    if (name == "__metadata__") {
      parse_metadata(value, header);
    } else {
      header.tensors.emplace(name, parse_tensor(name, value));
    }
  }
  check_coverage(header, file_bytes - header.data_offset);
  return header;
}

}  // namespace longhaul
