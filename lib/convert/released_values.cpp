// Reading the values of a released tensor in ranges, whatever they are stored as; see released_directory.h.
#include <cmath>
#include <cstring>

#include "convert/mxfp4.h"
#include "convert/released_directory.h"
#include "storage/half.h"

namespace longhaul {

namespace {

// The data of a file is not aligned.
template <class Stored, class T, class Convert>
void read_plain(const SafetensorsEntry& entry, int64_t first, std::span<T> out, Convert&& convert) {
  const std::byte* data = entry.data.data() + first * static_cast<int64_t>(sizeof(Stored));
  for (size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, data + i * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<T>(convert(value));
  }
}

// Rows are whole groups, so the n-th value of the tensor is in the n / 32-th group.
template <class T>
void read_mxfp4(const ReleasedTensor& tensor, int64_t first, std::span<T> out) {
  float scale = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t at = first + static_cast<int64_t>(i);
    if (i == 0 || at % mxfp4::kGroup == 0) {
      scale = mxfp4::scale_value(std::to_integer<uint8_t>(tensor.scale->data[static_cast<size_t>(at / mxfp4::kGroup)]));
    }
    const auto byte = std::to_integer<uint8_t>(tensor.data->data[static_cast<size_t>(at / 2)]);
    const float value = mxfp4::code_value(static_cast<uint8_t>(at % 2 == 0 ? byte & 15 : byte >> 4)) * scale;
    if (!std::isfinite(value)) {
      throw ConversionError("{} in {}: element {} is beyond the range of f32", tensor.name, tensor.file, at);
    }
    out[i] = static_cast<T>(value);
  }
}

}  // namespace

int64_t ReleasedTensor::numel() const noexcept {
  int64_t count = 1;
  for (const int64_t size : shape) {
    count *= size;
  }
  return count;
}

int64_t ReleasedTensor::bytes() const noexcept {
  return static_cast<int64_t>(data->data.size() + (scale != nullptr ? scale->data.size() : 0));
}

bool ReleasedTensor::is_real() const noexcept {
  return dtype == kMxfp4 || dtype == "F32" || dtype == "BF16" || dtype == "F16" || dtype == "F64";
}

template <class T>
void ReleasedTensor::read(int64_t first, std::span<T> out) const {
  LH_CHECK(first >= 0 && first + static_cast<int64_t>(out.size()) <= numel(), "{}: elements {} to {} of {}", name, first,
           first + static_cast<int64_t>(out.size()), numel());
  const auto same = [](auto value) { return value; };
  if (dtype == kMxfp4) {
    try {
      read_mxfp4(*this, first, out);
    } catch (ConversionError& error) {
      error.add_context(fmt::format("{} of {}", name, file));
      throw;
    }
  } else if (dtype == "F32") {
    read_plain<float>(*data, first, out, same);
  } else if (dtype == "BF16") {
    read_plain<BFloat16>(*data, first, out, [](BFloat16 value) { return static_cast<float>(value); });
  } else if (dtype == "F16") {
    read_plain<uint16_t>(*data, first, out, half_to_float);
  } else if (dtype == "F64") {
    read_plain<double>(*data, first, out, same);
  } else {
    throw ConversionError("{}: {} are no weights", name, dtype);
  }
}

template void ReleasedTensor::read(int64_t, std::span<float>) const;
template void ReleasedTensor::read(int64_t, std::span<double>) const;

}  // namespace longhaul
