// What a conversion did to tensors, in few lines: those whose names differ only in numbers (layers, experts) and to which
// the same happened are one row.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace longhaul {

// "model.layers.12.experts.3.w1" to "model.layers.*.experts.*.w1"; digits inside a word stay.
[[nodiscard]] std::string name_pattern(std::string_view name);

class ChangeTable {
 public:
  // Types as they are shown: "bf16", "f32", "mxfp4", …
  void add(std::string_view name, std::string_view from, std::string_view to, int64_t tensors = 1);

  [[nodiscard]] int64_t total() const noexcept { return total_; }
  [[nodiscard]] int64_t changed() const noexcept { return changed_; }
  // One line for each pattern whose type changed, "  bf16 -> f32    69 x model.layers.*.self_attn.q_proj.weight".
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::tuple<std::string, std::string, std::string>, int64_t> rows_;  // from, to, pattern
  int64_t total_ = 0;
  int64_t changed_ = 0;
};

}  // namespace longhaul
