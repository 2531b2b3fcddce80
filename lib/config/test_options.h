// Option structs for the tests of this folder, with every kind of field. Like real owners, they know nothing of config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "config/overlay.h"

namespace longhaul::config_test {

enum class OptimizerKind { Muon, AdamW, Off };
constexpr EnumNames<OptimizerKind, 3> enum_names(OptimizerKind) {
  return {{{OptimizerKind::Muon, "muon"}, {OptimizerKind::AdamW, "adamw"}, {OptimizerKind::Off, "off"}}};
}

struct MuonOptions {
  double momentum = 0.95;
  int iterations = 5;
  bool operator==(const MuonOptions&) const = default;
};
template <class Visitor>
void describe(Visitor& v, MuonOptions& o) {
  v.field("momentum", o.momentum, "of the update").at_least(0.0).less_than(1.0);
  v.field("iterations", o.iterations, "of the orthogonalisation").range(1, 20);
}

struct OptimizerOptions {
  OptimizerKind name = OptimizerKind::Muon;
  double learning_rate = 3e-4;
  float epsilon = 1e-8F;
  int64_t warmup_steps = 0;
  std::optional<double> clip_norm = 1.0;
  std::vector<double> betas = {0.9, 0.95};
  MuonOptions muon;
  bool operator==(const OptimizerOptions&) const = default;
};
template <class Visitor>
void describe(Visitor& v, OptimizerOptions& o) {
  v.field("name", o.name, "the algorithm");
  v.field("learning_rate", o.learning_rate, "peak learning rate").positive();
  v.field("epsilon", o.epsilon, "added to the denominator").positive();
  v.field("warmup_steps", o.warmup_steps, "steps from zero to the peak").non_negative();
  v.field("clip_norm", o.clip_norm, "largest norm of the gradient; null: no clipping").positive();
  v.field("betas", o.betas, "decay of the moments").has_size(2).range(0.0, 1.0);
  v.field("muon", o.muon, "only for name: muon");
}

struct ParallelOptions {
  int64_t pipeline = 1;
  int64_t data = 1;
  int64_t micro_batch_tokens = 8192;
  bool operator==(const ParallelOptions&) const = default;
};
template <class Visitor>
void describe(Visitor& v, ParallelOptions& o) {
  v.field("pipeline", o.pipeline, "pipeline stages").at_least(1);
  v.field("data", o.data, "data parallel ranks").at_least(1);
  v.field("micro_batch_tokens", o.micro_batch_tokens, "tokens of a micro batch").multiple_of(64);
}

struct SourceOptions {
  std::string path;
  double weight = 1.0;
  bool operator==(const SourceOptions&) const = default;
};
template <class Visitor>
void describe(Visitor& v, SourceOptions& o) {
  v.field("path", o.path, "prefix of the shard").required().not_empty();
  v.field("weight", o.weight, "share of the tokens | relative").positive();
}

struct DataOptions {
  std::vector<SourceOptions> train;
  bool operator==(const DataOptions&) const = default;
};
template <class Visitor>
void describe(Visitor& v, DataOptions& o) {
  v.field("train", o.train, "what is trained on");
}

struct StageOptions {
  std::string name;
  int64_t sequence_length = 4096;
  std::optional<int64_t> steps;
  config::Overlay<ParallelOptions> parallel;
  config::Overlay<OptimizerOptions> optimizer;
  config::Overlay<DataOptions> data;
};
template <class Visitor>
void describe(Visitor& v, StageOptions& o) {
  v.field("name", o.name, "of the stage").required();
  v.field("sequence_length", o.sequence_length, "tokens of a sequence").positive();
  v.field("steps", o.steps, "optimizer steps").positive();
  v.field("parallel", o.parallel, "changes to parallel");
  v.field("optimizer", o.optimizer, "changes to optimizer");
  v.field("data", o.data, "changes to data");
}

struct ExportOptions {
  std::string target;
  bool compress = true;
  bool operator==(const ExportOptions&) const = default;
};
template <class Visitor>
void describe(Visitor& v, ExportOptions& o) {
  v.field("target", o.target, "where to").required();
  v.field("compress", o.compress, "with zstd");
}

struct RunOptions {
  std::string name = "run";
  std::string dir = "runs/run";
  int64_t seed = 1234;
  bool deterministic = false;
  std::string precision = "bf16";
  std::vector<std::string> signals = {"USR1", "TERM"};
  std::vector<int64_t> layers;
  std::optional<ExportOptions> publish;
};
template <class Visitor>
void describe(Visitor& v, RunOptions& o) {
  v.field("name", o.name, "of the run").not_empty();
  v.field("dir", o.dir, "where its files go");
  v.field("seed", o.seed, "of all random numbers");
  v.field("deterministic", o.deterministic, "fixed order of all sums");
  v.field("precision", o.precision, "of the matrix products").one_of({"bf16", "fp32"});
  v.field("signals", o.signals, "that save and stop").not_empty();
  v.field("layers", o.layers, "1-based").at_least(1);
  v.field("publish", o.publish, "after the run; null: not at all");
}

struct TestRecipe {
  RunOptions run;
  ParallelOptions parallel;
  OptimizerOptions optimizer;
  DataOptions data;
  std::vector<StageOptions> stages;
};
template <class Visitor>
void describe(Visitor& v, TestRecipe& o) {
  v.field("run", o.run, "the run as a whole");
  v.field("parallel", o.parallel, "layout");
  v.field("optimizer", o.optimizer, "the update");
  v.field("data", o.data, "what is read");
  v.field("stages", o.stages, "in order");
}

}  // namespace longhaul::config_test
