// See export_shard.h.
#include "convert/export_shard.h"

#include "base/cast.h"
#include "convert/mxfp4.h"
#include "storage/safetensors_writer.h"

namespace longhaul {

namespace {

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

class ShardWriter {
 public:
  ShardWriter(ExportSources& sources, const ExportPlan& plan, const Shard& shard, const std::filesystem::path& path,
              const std::function<void(int64_t)>& wrote)
      : passing_(sources.passing()), values_(sources.checkpoint), file_(path, plan.declarations_of(shard), {{"format", "pt"}}), wrote_(wrote) {}

  void write(const ExportTensor& tensor) {
    if (!tensor.spec) {
      write_untouched(tensor);
    } else if (tensor.spec->type == ReleasedType::Mxfp4) {
      write_mxfp4(tensor);
    } else {
      write_plain(tensor);
    }
  }

  void finish() { file_.finish(); }

 private:
  void put(const std::string& name, std::span<const std::byte> bytes) {
    file_.write_part(name, bytes);
    if (wrote_) {
      wrote_(narrow<int64_t>(bytes.size()));
    }
  }

  // As bf16 or f32, padded with zeros to the declared size.
  void write_plain(const ExportTensor& tensor) {
    const std::string& name = tensor.declarations.front().name;
    int64_t left = 1;
    for (const int64_t size : tensor.spec->shape) {
      left *= size;
    }
    const auto put_values = [&](std::span<const float> values) {
      left -= std::ssize(values);
      if (tensor.spec->type == ReleasedType::F32) {
        put(name, std::as_bytes(values));
        return;
      }
      rounded_.clear();
      for (const float value : values) {
        rounded_.emplace_back(value);
      }
      put(name, bytes_of(rounded_));
    };
    values_.for_each_block(tensor.stored, tensor.spec->expert, put_values);
    if (left > 0) {
      put_values(std::vector<float>(static_cast<size_t>(left), 0.0f));
    }
  }

  // Codes stream; the scales, 1/16 of their size, follow them in the file and are kept until then.
  void write_mxfp4(const ExportTensor& tensor) {
    scales_.clear();
    values_.for_each_block(tensor.stored, tensor.spec->expert, [&](std::span<const float> values) {
      codes_.clear();
      for (size_t first = 0; first < values.size(); first += mxfp4::kGroup) {
        const mxfp4::EncodedGroup group = encode(tensor, values.subspan(first).first<mxfp4::kGroup>());
        codes_.insert(codes_.end(), group.packed.begin(), group.packed.end());
        scales_.push_back(group.scale);
      }
      put(tensor.declarations[0].name, bytes_of(codes_));
    });
    put(tensor.declarations[1].name, bytes_of(scales_));
  }

  static mxfp4::EncodedGroup encode(const ExportTensor& tensor, std::span<const float, mxfp4::kGroup> values) {
    try {
      return mxfp4::encode(values);
    } catch (ConversionError& error) {
      error.add_context(tensor.spec->name);
      throw;
    }
  }

  void write_untouched(const ExportTensor& tensor) {
    const TensorSpec& spec = passing_.manifest().tensors.at(tensor.stored).spec;
    bool is_empty = true;
    for_each_part(TensorView(nullptr, spec.dtype, spec.shape), CheckpointValues::kBlockBytes, [&](const std::vector<int64_t>& offset, const TensorView& part) {
      const Tensor block(part.spec());
      passing_.read(tensor.stored, offset, block);
      put(tensor.declarations.front().name, std::span(static_cast<const std::byte*>(block.view().raw()), static_cast<size_t>(part.bytes())));
      is_empty = false;
    });
    LH_CHECK(!is_empty, "{} was not visited", tensor.stored);
  }

  CheckpointReader& passing_;
  CheckpointValues values_;
  SafetensorsWriter file_;
  const std::function<void(int64_t)>& wrote_;
  std::vector<BFloat16> rounded_;
  std::vector<uint8_t> codes_;
  std::vector<uint8_t> scales_;
};

}  // namespace

void write_shard(ExportSources& sources, const ExportPlan& plan, const Shard& shard, const std::filesystem::path& path,
                 const std::function<void(int64_t)>& wrote) {
  ShardWriter writer(sources, plan, shard, path, wrote);
  for (int64_t i = shard.first; i < shard.last; ++i) {
    writer.write(plan.tensors[static_cast<size_t>(i)]);
  }
  writer.finish();
}

}  // namespace longhaul
