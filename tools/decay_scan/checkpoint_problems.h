// The gates that a trained model makes: the whole model runs forward on tokens, on the CPU in fp32, and each KDA layer's queries,
// keys, values, gates and betas become a problem to judge by.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/decay_scan/scan.h"

namespace longhaul::decay {

struct CheckpointSource {
  std::string path;  // checkpoint, run directory or released model
  std::string data;  // prefix of tokenised text; empty: random tokens
  int64_t tokens = 512;
};

// What one layer's gates are, over all heads.
struct LayerGates {
  int64_t layer = 0;        // 1-based, as in linear_attn_config
  double smallest = 0;      // gate
  double mean = 0;
  double near_bound = 0;    // share of gates within 1 % of the lower bound; 0 without a bound
  double log_reciprocal_16 = 0, log_reciprocal_64 = 0;  // of the largest reciprocal factor in tiles of 16 and of 64 rows
};

class CheckpointProblems {
 public:
  // CheckpointError, ConversionError, DataError.
  explicit CheckpointProblems(const CheckpointSource& source);

  [[nodiscard]] const std::vector<LayerGates>& layers() const noexcept { return layers_; }
  // One a layer, on the heads that decay most. Gates g of a model with the bound b become g (bound / b) for another bound,
  // as if it had been built with that: g = b sigmoid(...). A softplus gate has no bound and is taken as it is.
  [[nodiscard]] std::vector<MakeProblem> problems() const;
  // `asked` for a bounded gate; for a softplus gate, the smallest gate found.
  [[nodiscard]] std::vector<double> bounds(const std::vector<double>& asked) const;
  [[nodiscard]] std::string title() const;
  [[nodiscard]] std::string scaling_text() const;

 private:
  std::string path_;
  std::string text_;  // what the model read
  std::optional<double> lower_bound_;
  double smallest_ = 0;
  std::vector<LayerGates> layers_;
  std::vector<ScanProblem> recorded_;
};

}  // namespace longhaul::decay
