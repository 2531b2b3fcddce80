// See checkpoint_values.h.
#include "convert/checkpoint_values.h"

#include <algorithm>

#include "base/cast.h"

namespace longhaul {

namespace {

template <class T>
void convert(const TensorView& stored, std::span<T> out) {
  const auto copy = [&]<class Stored>(Stored) {
    const Stored* from = stored.data<Stored>();
    if constexpr (std::is_same_v<Stored, BFloat16>) {
      std::transform(from, from + out.size(), out.begin(), [](BFloat16 x) { return static_cast<T>(static_cast<float>(x)); });
    } else {
      std::transform(from, from + out.size(), out.begin(), [](Stored x) { return static_cast<T>(x); });
    }
  };
  switch (stored.dtype()) {
    case DType::F64: return copy(double{});
    case DType::F32: return copy(float{});
    case DType::BF16: return copy(BFloat16{});
    case DType::I64: return copy(int64_t{});
    case DType::I32: return copy(int32_t{});
    case DType::U8: return copy(uint8_t{});
  }
}

}  // namespace

template <class T>
void CheckpointValues::read(const std::string& name, std::span<const int64_t> offset, const Shape& shape, std::span<T> out) {
  const DType dtype = reader_.manifest().tensors.at(name).spec.dtype;
  const int64_t bytes = shape.numel() * size_of(dtype);
  if (!stored_.view().is_present() || stored_.view().bytes() < bytes) {
    stored_ = Tensor(DType::U8, {bytes});
  }
  const TensorView view(stored_.view().raw(), dtype, shape);
  reader_.read(name, offset, view);
  convert(view, out);
}

template void CheckpointValues::read(const std::string&, std::span<const int64_t>, const Shape&, std::span<float>);
template void CheckpointValues::read(const std::string&, std::span<const int64_t>, const Shape&, std::span<double>);

std::span<const float> CheckpointValues::entry_of(const std::string& name, const Shape& whole, int64_t entry) {
  const int64_t each = whole.numel() / whole[0];
  const int64_t together = std::max<int64_t>(1, kBlockBytes / (each * size_of(DType::F32)));
  const int64_t first = entry / together * together;
  if (kept_name_ != name || kept_first_ != first) {
    Shape shape = whole;
    shape.set(0, std::min(together, whole[0] - first));
    std::vector<int64_t> offset(static_cast<size_t>(whole.rank()), 0);
    offset[0] = first;
    kept_.resize(static_cast<size_t>(shape.numel()));
    kept_name_.clear();
    read(name, offset, shape, std::span(kept_));
    kept_name_ = name;
    kept_first_ = first;
  }
  return std::span<const float>(kept_).subspan(static_cast<size_t>((entry - first) * each), static_cast<size_t>(each));
}

void CheckpointValues::for_each_block(const std::string& name, int64_t entry, const std::function<void(std::span<const float>)>& visit) {
  const Shape& whole = reader_.manifest().tensors.at(name).spec.shape;
  const TensorView all(nullptr, DType::F32, whole);
  const TensorView part = entry < 0 ? all : all.slice(0, entry, entry + 1);
  if (entry >= 0 && part.bytes() <= kBlockBytes && part.bytes() > 0) {
    visit(entry_of(name, whole, entry));
    return;
  }
  for_each_part(part, kBlockBytes, [&](std::vector<int64_t> offset, const TensorView& block) {
    if (entry >= 0) {
      offset[0] += entry;
    }
    block_.resize(static_cast<size_t>(block.numel()));
    read(name, offset, block.shape(), std::span(block_));
    visit(block_);
  });
}

}  // namespace longhaul
