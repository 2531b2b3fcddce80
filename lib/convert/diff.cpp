// See diff.h.
#include "convert/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "checkpoint/piece.h"
#include "convert/model_tensors.h"

namespace longhaul {

namespace {

constexpr int64_t kBlockBytes = 4 << 20;

bool is_comparable(const SourceTensor& tensor) { return tensor.name.starts_with(kModelGroup) || tensor.name.starts_with(kPassthroughGroup); }

double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) {
    return 0;
  }
  const double d = std::abs(a - b);
  return std::isnan(d) ? INFINITY : d;
}

std::string index_text(const Shape& shape, int64_t element) {
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()));
  for (int d = shape.rank() - 1; d >= 0; --d) {
    index[static_cast<size_t>(d)] = element % shape[d];
    element /= shape[d];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

TensorDifference compare_tensor(TensorSource& a, const SourceTensor& in_a, TensorSource& b, const SourceTensor& in_b) {
  TensorDifference result{.name = in_a.name};
  double scale = 0;
  int64_t first = 0;
  int64_t worst = 0;
  std::vector<double> x;
  std::vector<double> y;
  for_each_part(TensorView(nullptr, DType::F64, in_a.shape), kBlockBytes, [&](const std::vector<int64_t>& offset, const TensorView& part) {
    x.resize(static_cast<size_t>(part.numel()));
    y.resize(x.size());
    a.read(in_a, offset, part.shape(), x);
    b.read(in_b, offset, part.shape(), y);
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = distance(x[i], y[i]);
      if (d > result.max_abs) {
        result.max_abs = d;
        worst = first + static_cast<int64_t>(i);
      }
      scale = std::isfinite(y[i]) ? std::max(scale, std::abs(y[i])) : scale;
    }
    first += part.numel();
  });
  if (result.max_abs > 0) {
    result.relative = scale > 0 ? result.max_abs / scale : INFINITY;
    result.where = index_text(in_a.shape, worst);
  }
  return result;
}

// Counts what is not compared, by the first part of its name.
void note_left_out(const TensorSource& source, std::vector<std::string>& lines) {
  std::map<std::string, int64_t> counts;
  for (const SourceTensor& tensor : source.tensors()) {
    if (!is_comparable(tensor)) {
      ++counts[tensor.name.substr(0, tensor.name.find('/'))];
    }
  }
  for (const auto& [group, count] : counts) {
    lines.push_back(fmt::format("{} tensors under {}/", count, group));
  }
}

void append(std::string& out, const char* title, const std::vector<std::string>& lines) {
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < std::min(lines.size(), kShown); ++i) {
    out += fmt::format("{}  {}\n", title, lines[i]);
  }
  if (lines.size() > kShown) {
    out += fmt::format("{}  … and {} more\n", title, lines.size() - kShown);
  }
}

}  // namespace

DiffReport diff_sources(TensorSource& a, TensorSource& b) {
  const bool both_checkpoints = a.kind() == DirectoryKind::Checkpoint && b.kind() == DirectoryKind::Checkpoint;
  DiffReport report;
  for (const SourceTensor& in_a : a.tensors()) {
    if (!both_checkpoints && !is_comparable(in_a)) {
      continue;
    }
    const SourceTensor* in_b = b.find(in_a.name);
    if (in_b == nullptr) {
      report.only_a.push_back(in_a.name);
    } else if (in_a.shape != in_b->shape || (both_checkpoints && in_a.type != in_b->type)) {
      report.mismatched.push_back(fmt::format("{}: {}{} and {}{}", in_a.name, in_a.type, in_a.shape.to_string(), in_b->type, in_b->shape.to_string()));
    } else {
      ++report.compared;
      if (TensorDifference difference = compare_tensor(a, in_a, b, *in_b); difference.max_abs > 0) {
        report.different.push_back(std::move(difference));
      }
    }
  }
  for (const SourceTensor& in_b : b.tensors()) {
    if ((both_checkpoints || is_comparable(in_b)) && a.find(in_b.name) == nullptr) {
      report.only_b.push_back(in_b.name);
    }
  }
  if (!both_checkpoints) {
    note_left_out(a, report.left_out);
    note_left_out(b, report.left_out);
  }
  std::stable_sort(report.different.begin(), report.different.end(),
                   [](const TensorDifference& x, const TensorDifference& y) { return x.relative > y.relative; });
  return report;
}

bool DiffReport::within(double tolerance) const {
  return only_a.empty() && only_b.empty() && mismatched.empty() && (different.empty() || different.front().relative <= tolerance);
}

std::string DiffReport::text(double tolerance) const {
  constexpr size_t kShown = 20;
  std::string out;
  append(out, "only in A ", only_a);
  append(out, "only in B ", only_b);
  append(out, "unlike    ", mismatched);
  for (size_t i = 0; i < std::min(different.size(), kShown); ++i) {
    const TensorDifference& d = different[i];
    out += fmt::format("different   max abs {:.3e}, relative {:.3e}  {} at {}\n", d.max_abs, d.relative, d.name, d.where);
  }
  append(out, "not compared", left_out);
  const auto beyond = std::count_if(different.begin(), different.end(), [&](const TensorDifference& d) { return d.relative > tolerance; });
  return out + fmt::format("{} tensors compared: {} equal, {} different, {} beyond the tolerance {:g}; {} only in A, {} only in B, {} unlike\n{}\n",
                           compared, compared - std::ssize(different), different.size(), beyond, tolerance, only_a.size(), only_b.size(),
                           mismatched.size(), within(tolerance) ? (different.empty() ? "equal" : "within the tolerance") : "DIFFERENT");
}

}  // namespace longhaul
