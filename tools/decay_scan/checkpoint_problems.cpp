// See checkpoint_problems.h.
#include "tools/decay_scan/checkpoint_problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "base/philox.h"
#include "comm/loopback_device_comm.h"
#include "comm/self_host_comm.h"
#include "convert/released_weights.h"
#include "data/token_file.h"
#include "model/stage_model.h"

namespace longhaul::decay {
namespace {

constexpr size_t kMostHeads = 4;  // a layer, on which errors are measured
constexpr uint64_t kTokenSeed = 16;

struct Tokens {
  std::vector<int32_t> ids;
  std::vector<int64_t> lengths;  // of the documents

  Tokens(const CheckpointSource& source, int64_t vocab_size) {
    if (source.data.empty()) {
      const RandomStream random{.seed = kTokenSeed, .stream = 0};
      for (int64_t i = 0; i < source.tokens; ++i) {
        ids.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab_size))));
      }
      lengths = {source.tokens};
      return;
    }
    const TokenFile file = TokenFile::open(source.data, {.vocab_size = vocab_size});
    for (int64_t document = 0; document < file.num_documents() && std::ssize(ids) < source.tokens; ++document) {
      const int64_t length = std::min(file.document_length(document), source.tokens - std::ssize(ids));
      std::vector<int32_t> part(static_cast<size_t>(length));
      file.read(document, 0, part);
      ids.insert(ids.end(), part.begin(), part.end());
      lengths.push_back(length);
    }
    if (ids.empty()) {
      throw DataError("{}: holds no tokens; give another --data", source.data);
    }
  }
};

// The model on one rank, after its forward pass. Members that others refer to come first and stay where they are.
struct RunModel {
  SelfHostComm host;
  LoopbackDeviceComm device;
  Group alone{"alone", 0, 1, host, device};
  StageModel model;
  ExecContext ctx = ExecContext::cpu();
  Parameters parameters;
  std::vector<Tensor> biases;
  Arena keep{Device{}, "activations", 0, Arena::Growth::Chunked};
  StageModel::Saved saved;

  RunModel(const ReleasedModel& released, const Tokens& tokens)
      : model(released.options(), {.first_layer = 0, .last_layer = released.options().num_hidden_layers, .has_embedding = true, .has_head = true}, DType::F32, alone),
        parameters(model, ctx) {
    released.load(parameters);
    parameters.publish(ctx);
    const auto n = static_cast<int64_t>(tokens.ids.size());
    std::vector<int64_t> bounds{0};
    std::partial_sum(tokens.lengths.begin(), tokens.lengths.end(), std::back_inserter(bounds));
    // The loss is not wanted, but the last stage computes one; a token is a target as good as another.
    const Tensor ids = Tensor::from(tokens.ids, {n}), cu_seqlens = Tensor::from(bounds, {static_cast<int64_t>(bounds.size())});
    const Tensor loss = Tensor::zeros(DType::F64, {1});
    saved = model.forward(ctx, keep, parameters.values(), routers(released), {.ids = ids, .targets = ids, .cu_seqlens = cu_seqlens}, {},
                          {.sum = loss, .grad_scale = 1}, StageModel::Purpose::LossOnly);
  }

 private:
  std::vector<RouterState> routers(const ReleasedModel& released) {
    std::vector<RouterState> states(model.layers().size());
    const std::vector<std::vector<double>> values = released.selection_bias();
    for (size_t i = 0; i < states.size(); ++i) {
      if (!model.layers()[i].is_dense) {
        biases.push_back(Tensor::from(std::vector<float>(values[i].begin(), values[i].end()), {static_cast<int64_t>(values[i].size())}));
        states[i].bias = biases.back();
      }
    }
    return states;
  }
};

// Largest -sum of gates from a tile's first row, of one channel of a head ([tokens, heads, key_dim] gates, of type float).
double log_reciprocal(const TensorView& gates, const std::vector<int64_t>& lengths, int64_t head, int64_t tile) {
  const int64_t heads = gates.size(1), dim = gates.size(2);
  double largest = 0;
  for (int64_t c = 0; c < dim; ++c) {
    const float* at = gates.data<float>() + head * dim + c;
    for (const int64_t length : lengths) {
      double sum = 0;
      for (int64_t i = 0; i < length; ++i, at += heads * dim) {
        sum = i % tile == 0 ? 0 : sum - static_cast<double>(*at);
        largest = std::max(largest, sum);
      }
    }
  }
  return largest;
}

LayerGates gates_of(int64_t layer, const TensorView& gates, const std::vector<int64_t>& lengths, std::optional<double> bound) {
  LayerGates out{.layer = layer};
  const auto n = static_cast<double>(gates.numel());
  for (int64_t i = 0; i < gates.numel(); ++i) {
    const auto g = static_cast<double>(gates.data<float>()[i]);
    out.smallest = std::min(out.smallest, g);
    out.mean += g / n;
    out.near_bound += bound && g <= 0.99 * *bound ? 1 / n : 0;
  }
  for (int64_t head = 0; head < gates.size(1); ++head) {
    out.log_reciprocal_16 = std::max(out.log_reciprocal_16, log_reciprocal(gates, lengths, head, 16));
    out.log_reciprocal_64 = std::max(out.log_reciprocal_64, log_reciprocal(gates, lengths, head, 64));
  }
  return out;
}

// The heads that decay most within a tile of 16 rows, at most kMostHeads.
std::vector<int64_t> strongest_heads(const TensorView& gates, const std::vector<int64_t>& lengths) {
  std::vector<std::pair<double, int64_t>> order;
  for (int64_t head = 0; head < gates.size(1); ++head) {
    order.emplace_back(-log_reciprocal(gates, lengths, head, 16), head);
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), kMostHeads));
  std::vector<int64_t> heads;
  std::transform(order.begin(), order.end(), std::back_inserter(heads), [](const auto& entry) { return entry.second; });
  return heads;
}

// Some heads of [tokens, heads, width] or [tokens, heads], in F64.
Tensor select(const TensorView& from, const std::vector<int64_t>& heads) {
  const int64_t width = from.rank() == 3 ? from.size(2) : 1, count = static_cast<int64_t>(heads.size());
  Tensor out(DType::F64, from.rank() == 3 ? Shape{from.size(0), count, width} : Shape{from.size(0), count});
  double* to = out.values<double>().data();
  for (int64_t token = 0; token < from.size(0); ++token) {
    for (const int64_t head : heads) {
      to = std::copy_n(from.data<float>() + (token * from.size(1) + head) * width, width, to);
    }
  }
  return out;
}

ScanProblem record(int64_t layer, const KdaLayer::Saved& saved, const std::vector<int64_t>& lengths) {
  const std::vector<int64_t> heads = strongest_heads(saved.g, lengths);
  ScanProblem p{.name = fmt::format("layer {}", layer), .lengths = lengths, .heads = static_cast<int64_t>(heads.size()), .key_dim = saved.k.size(2),
                .value_dim = saved.v.size(2)};
  p.q = select(saved.q, heads);
  p.k = select(saved.k, heads);
  p.v = select(saved.v, heads);
  p.g = select(saved.g, heads);
  p.beta = select(saved.beta, heads);
  fill_the_rest(p);
  return p;
}

Tensor copy_of(const Tensor& from, double factor = 1) {
  Tensor to(DType::F64, from.view().shape());
  std::transform(from.values<double>().begin(), from.values<double>().end(), to.values<double>().begin(), [factor](double x) { return factor * x; });
  return to;
}

// The recorded problem with gates times `factor`. Documents begin without a state, and nothing reads the last one.
ScanProblem scaled(const ScanProblem& from, double factor, Precision precision) {
  ScanProblem p{.name = from.name, .lengths = from.lengths, .heads = from.heads, .key_dim = from.key_dim, .value_dim = from.value_dim, .scale = from.scale};
  p.q = copy_of(from.q);
  p.k = copy_of(from.k);
  p.v = copy_of(from.v);
  p.d_o = copy_of(from.d_o);
  p.g = copy_of(from.g, factor);
  p.beta = copy_of(from.beta);
  p.initial_state = copy_of(from.initial_state, 0);
  p.dfinal_state = copy_of(from.dfinal_state, 0);
  const auto bounds = from.cu_seqlens.values<int64_t>();
  p.cu_seqlens = Tensor::from(std::span<const int64_t>(bounds), from.cu_seqlens.view().shape());
  round_inputs(p, precision);
  return p;
}

}  // namespace

CheckpointProblems::CheckpointProblems(const CheckpointSource& source) : path_(source.path) {
  const ReleasedModel released(source.path);
  const ModelOptions& options = released.options();
  lower_bound_ = options.linear_attn_config.gate_lower_bound;
  const Tokens tokens(source, options.vocab_size);
  text_ = fmt::format("{} {}", tokens.ids.size(), source.data.empty() ? "random tokens" : "tokens of " + source.data);
  const auto run = std::make_unique<RunModel>(released, tokens);
  for (size_t i = 0; i < run->model.layers().size(); ++i) {
    if (!run->model.layers()[i].is_kda) {
      continue;
    }
    const KdaLayer::Saved& saved = run->saved.layers[i].kda;
    const auto layer = static_cast<int64_t>(i) + 1;
    layers_.push_back(gates_of(layer, saved.g, tokens.lengths, lower_bound_));
    smallest_ = std::min(smallest_, layers_.back().smallest);
    recorded_.push_back(record(layer, saved, tokens.lengths));
  }
  if (layers_.empty()) {
    throw CheckpointError("{}: the model has no KDA layers, and so no decay to scan", source.path);
  }
}

std::vector<MakeProblem> CheckpointProblems::problems() const {
  std::vector<MakeProblem> makers;
  for (const ScanProblem& recorded : recorded_) {
    makers.push_back([&recorded, own = lower_bound_](const Setting& s) { return scaled(recorded, own ? s.bound / *own : 1, s.precision); });
  }
  return makers;
}

std::vector<double> CheckpointProblems::bounds(const std::vector<double>& asked) const {
  return lower_bound_ ? asked : std::vector<double>{smallest_};
}

std::string CheckpointProblems::title() const {
  return fmt::format("{} on {}, {}", path_, text_, lower_bound_ ? fmt::format("bound {:g}", *lower_bound_) : "softplus gate, no bound");
}

std::string CheckpointProblems::scaling_text() const {
  return lower_bound_ ? fmt::format("these gates, scaled from the bound {:g} to each bound", *lower_bound_) : std::string("these gates");
}

}  // namespace longhaul::decay
