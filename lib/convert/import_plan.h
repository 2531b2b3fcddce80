// From the tensors of a released directory to the tensors of a checkpoint: which elements of which tensor each of ours is
// made of. Making the plan reads headers only and is strict: every element of every tensor of the model comes from exactly
// one place, and every tensor of the directory is used, or is one of those that pass through untouched.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "convert/model_tensors.h"
#include "convert/released_directory.h"

namespace longhaul {

// Elements [first, first + count) of `tensor` are elements [to, to + count) of the one that is filled.
struct FilledPart {
  const ReleasedTensor* tensor = nullptr;
  int64_t first = 0;
  int64_t to = 0;
  int64_t count = 0;
};

struct FilledTensor {
  ModelTensor target;
  std::vector<FilledPart> parts;  // by `to`, without gap or overlap

  // Elements from `first` on, row-major; T is float or double.
  template <class T>
  void read(int64_t first, std::span<T> out) const;
};

class ImportPlan {
 public:
  // Throws a ConversionError that lists every missing, extra, misshapen and mistyped tensor. `directory` must outlive the plan.
  explicit ImportPlan(const ReleasedDirectory& directory);

  // In the order of model_tensors().
  [[nodiscard]] const std::vector<FilledTensor>& tensors() const noexcept { return tensors_; }
  // vision_tower.* and mm_projector.*: none of this model.
  [[nodiscard]] const std::vector<const ReleasedTensor*>& passthrough() const noexcept { return passthrough_; }

 private:
  std::vector<FilledTensor> tensors_;
  std::vector<const ReleasedTensor*> passthrough_;
};

[[nodiscard]] bool is_passthrough(std::string_view released_name);

}  // namespace longhaul
