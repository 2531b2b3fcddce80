// See import_plan.h.
#include "convert/import_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "convert/external_names.h"

namespace longhaul {

namespace {

using ShapeList = std::vector<int64_t>;

std::string text_of(const ShapeList& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// Sizes without those of 1: releases differ in [1, 1, heads, 1] and [heads], [channels, 1, taps] and [channels, taps].
ShapeList squeezed(const ShapeList& shape) {
  ShapeList result;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(result), [](int64_t size) { return size != 1; });
  return result;
}

ShapeList sizes_of(const Shape& shape) {
  ShapeList sizes;
  for (int d = 0; d < shape.rank(); ++d) {
    sizes.push_back(shape[d]);
  }
  return sizes;
}

// Matches tensors with the model's and collects all that is wrong.
class Matcher {
 public:
  Matcher(const ModelOptions& model, std::vector<FilledTensor>& tensors) : model_(model), tensors_(tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      by_name_.emplace(tensors[i].target.name, i);
    }
  }

  void add(const ReleasedTensor& tensor) {
    std::vector<TensorPart> parts;
    try {
      parts = parts_of(tensor.name, tensor.shape, model_);
    } catch (const Error&) {  // of a shape that cannot be cut into equal parts
      problems.push_back(fmt::format("{}: the shape {} does not fit the model", tensor.name, text_of(tensor.shape)));
      return;
    }
    std::vector<FilledTensor*> targets;
    for (const TensorPart& part : parts) {
      const auto found = by_name_.find(part.parameter);
      if (found == by_name_.end()) {
        problems.push_back(fmt::format("{}: the model has no {}", tensor.name, part.parameter));
        return;
      }
      targets.push_back(&tensors_[found->second]);
    }
    const std::string problem = parts.empty() ? "belongs to nothing in this model" : problem_of(tensor, parts, *targets.front());
    if (!problem.empty()) {
      problems.push_back(fmt::format("{}: {}", tensor.name, problem));
      for (size_t i = 0; i < targets.size(); ++i) {
        reported_[targets[i]->target.name].insert(parts[i].to / std::max<int64_t>(parts[i].count, 1));
      }
      return;
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      targets[i]->parts.push_back({.tensor = &tensor, .first = parts[i].first, .to = parts[i].to, .count = parts[i].count});
    }
  }

  // After the last tensor: what is missing or given twice.
  void finish() {
    for (FilledTensor& filled : tensors_) {
      std::sort(filled.parts.begin(), filled.parts.end(), [](const FilledPart& a, const FilledPart& b) { return a.to < b.to; });
      int64_t end = 0;
      for (const FilledPart& part : filled.parts) {
        report_gap(filled, end, part.to);
        if (part.to < end) {
          problems.push_back(fmt::format("{}: gives elements of {} that another tensor gives, too", part.tensor->name, filled.target.name));
        }
        end = part.to + part.count;
      }
      report_gap(filled, end, filled.target.shape.numel());
    }
  }

  std::vector<std::string> problems;

 private:
  [[nodiscard]] std::string problem_of(const ReleasedTensor& tensor, const std::vector<TensorPart>& parts, const FilledTensor& target) const {
    if (!tensor.is_real()) {
      return fmt::format("is of type {}, wanted one of BF16, F32, F16, F64 or an MXFP4 pair", tensor.dtype);
    }
    if (tensor.dtype == kMxfp4 && target.target.experts == 0) {
      return "is in MXFP4, which only routed experts may be";
    }
    const Shape& own = target.target.shape;
    if (target.target.name.ends_with(".A_log") && parts.front().count == own.numel() && squeezed(tensor.shape).size() <= 1) {
      return padding_problem(tensor, own.numel());
    }
    ShapeList wanted = sizes_of(own);
    if (parts.size() == 3) {  // a merged convolution
      wanted[0] *= 3;
    } else if (parts.size() > 1) {  // gate and up of all experts
      wanted[1] *= 2;
    } else if (target.target.experts > 0 && parts.front().count != own.numel()) {  // one expert
      wanted.erase(wanted.begin());
    }
    return squeezed(wanted) == squeezed(tensor.shape) ? "" : fmt::format("has the shape {}, wanted {}", text_of(tensor.shape), text_of(wanted));
  }

  // Behind the last head a released file may hold zeros and nothing else.
  [[nodiscard]] static std::string padding_problem(const ReleasedTensor& tensor, int64_t heads) {
    std::vector<double> padding(static_cast<size_t>(tensor.numel() - heads));
    tensor.read(heads, std::span(padding));
    const bool is_zero = std::all_of(padding.begin(), padding.end(), [](double x) { return x == 0; });
    return is_zero ? "" : fmt::format("has {} values, of which the model uses {}; the others must be zero and are not", tensor.numel(), heads);
  }

  void report_gap(const FilledTensor& filled, int64_t begin, int64_t end) {
    if (begin >= end) {
      return;
    }
    const ModelTensor& target = filled.target;
    const std::set<int64_t>& reported = reported_[target.name];
    if (target.experts == 0) {
      if (reported.empty()) {
        problems.push_back(fmt::format("{}: is missing", target.name));
      }
      return;
    }
    constexpr std::string_view kExperts = ".experts.";
    const int64_t each = target.shape.numel() / target.experts;
    const size_t at = target.name.find(kExperts) + kExperts.size();
    for (int64_t expert = begin / each; expert < end / each; ++expert) {
      if (!reported.contains(expert)) {
        problems.push_back(fmt::format("{}{}.{}: is missing", target.name.substr(0, at), expert, target.name.substr(at)));
      }
    }
  }

  const ModelOptions& model_;
  std::vector<FilledTensor>& tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, std::set<int64_t>> reported_;  // experts (0 for what is no stack) whose gaps a problem explains already
};

}  // namespace

template <class T>
void FilledTensor::read(int64_t first, std::span<T> out) const {
  auto part = std::upper_bound(parts.begin(), parts.end(), first, [](int64_t at, const FilledPart& p) { return at < p.to; });
  LH_CHECK(part != parts.begin(), "{}: element {} comes from nowhere", target.name, first);
  --part;
  for (size_t done = 0; done < out.size(); ++part) {
    LH_CHECK(part != parts.end(), "{}: element {} comes from nowhere", target.name, first + static_cast<int64_t>(done));
    const int64_t skip = first + static_cast<int64_t>(done) - part->to;
    const auto count = static_cast<size_t>(std::min(part->count - skip, static_cast<int64_t>(out.size() - done)));
    part->tensor->read(part->first + skip, out.subspan(done, count));
    done += count;
  }
}

template void FilledTensor::read(int64_t, std::span<float>) const;
template void FilledTensor::read(int64_t, std::span<double>) const;

bool is_passthrough(std::string_view name) { return name.starts_with("vision_tower.") || name.starts_with("mm_projector."); }

ImportPlan::ImportPlan(const ReleasedDirectory& directory) {
  for (ModelTensor& tensor : model_tensors(directory.options())) {
    tensors_.push_back({.target = std::move(tensor), .parts = {}});
  }
  Matcher matcher(directory.options(), tensors_);
  matcher.problems = directory.problems();
  for (const ReleasedTensor& tensor : directory.tensors()) {
    if (is_passthrough(tensor.name)) {
      passthrough_.push_back(&tensor);
    } else {
      matcher.add(tensor);
    }
  }
  matcher.finish();
  if (!matcher.problems.empty()) {
    throw ConversionError("{}: {} tensors do not match the model:\n  {}", directory.path().string(), matcher.problems.size(), listed(matcher.problems));
  }
}

}  // namespace longhaul
