// See tensor_source.h.
#include "convert/tensor_source.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/cast.h"
#include "convert/checkpoint_values.h"
#include "convert/import_plan.h"
#include "convert/model_recipe.h"
#include "convert/passthrough.h"

namespace longhaul {

namespace {

class CheckpointSource final : public TensorSource {
 public:
  explicit CheckpointSource(const std::filesystem::path& path) : reader_(path), values_(reader_) {
    for (const auto& [name, tensor] : reader_.manifest().tensors) {
      tensors_.push_back({.name = name, .type = std::string(to_string(tensor.spec.dtype)), .shape = tensor.spec.shape, .bytes = tensor.spec.bytes()});
    }
  }

  [[nodiscard]] DirectoryKind kind() const noexcept override { return DirectoryKind::Checkpoint; }
  [[nodiscard]] ModelOptions options() const override { return model_options_from_recipe(reader_.info().recipe, reader_.path()); }
  void read(const SourceTensor& tensor, std::span<const int64_t> offset, const Shape& shape, std::span<double> out) override {
    values_.read(tensor.name, offset, shape, out);
  }

 private:
  CheckpointReader reader_;
  CheckpointValues values_;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

class ReleasedSource final : public TensorSource {
 public:
  explicit ReleasedSource(const std::filesystem::path& path) : directory_(path), plan_(directory_) {
    for (const FilledTensor& filled : plan_.tensors()) {
      std::set<std::string> types;
      int64_t bytes = 0;
      for (const FilledPart& part : filled.parts) {
        types.insert(lower(part.tensor->dtype));
        // A merged tensor gives each of ours its share.
        bytes += part.tensor->numel() == 0 ? 0 : part.tensor->bytes() * part.count / part.tensor->numel();
      }
      tensors_.push_back({.name = std::string(kModelGroup) + filled.target.name, .type = fmt::format("{}", fmt::join(types, "+")), .shape = filled.target.shape, .bytes = bytes});
      filled_.emplace(tensors_.back().name, &filled);
    }
    for (const ReleasedTensor* tensor : plan_.passthrough()) {
      tensors_.push_back({.name = std::string(kPassthroughGroup) + tensor->name, .type = lower(tensor->dtype),
                          .shape = passthrough_form(*tensor).stored.shape, .bytes = tensor->bytes()});
      untouched_.emplace(tensors_.back().name, tensor);
    }
    std::sort(tensors_.begin(), tensors_.end(), [](const SourceTensor& a, const SourceTensor& b) { return a.name < b.name; });
  }

  [[nodiscard]] DirectoryKind kind() const noexcept override { return DirectoryKind::Released; }
  [[nodiscard]] ModelOptions options() const override { return directory_.options(); }

  void read(const SourceTensor& tensor, std::span<const int64_t> offset, const Shape&, std::span<double> out) override {
    int64_t first = 0;
    for (size_t d = 0; d < offset.size(); ++d) {
      first = first * tensor.shape[narrow<int>(static_cast<int64_t>(d))] + offset[d];
    }
    if (const auto filled = filled_.find(tensor.name); filled != filled_.end()) {
      filled->second->read(first, out);
      return;
    }
    const ReleasedTensor& untouched = *untouched_.at(tensor.name);
    if (untouched.is_real() && !passthrough_form(untouched).is_bytes) {
      untouched.read(first, out);
      return;
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<double>(std::to_integer<int>(untouched.data->data[static_cast<size_t>(first) + i]));
    }
  }

 private:
  ReleasedDirectory directory_;
  ImportPlan plan_;
  std::map<std::string, const FilledTensor*> filled_;
  std::map<std::string, const ReleasedTensor*> untouched_;
};

}  // namespace

const SourceTensor* TensorSource::find(std::string_view name) const {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name, [](const SourceTensor& t, std::string_view n) { return t.name < n; });
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

std::unique_ptr<TensorSource> open_tensor_source(const std::filesystem::path& path) {
  if (directory_kind(path) == DirectoryKind::Released) {
    return std::make_unique<ReleasedSource>(path);
  }
  return std::make_unique<CheckpointSource>(checkpoint_at(path));
}

std::unique_ptr<TensorSource> open_model_source(const std::filesystem::path& path) {
  if (holds_checkpoints(path)) {
    return open_tensor_source(path);
  }
  return std::make_unique<ReleasedSource>(path);
}

}  // namespace longhaul
