// A whole mixture-of-experts layer on one rank: router with the counts of balancing, latent projections, experts, shared
// expert. FLOPs per token: 2 (E D + 2 D L + K 3 L I + 3 D I) forward for E experts of top K, width D, latent L and inner
// width I with one shared expert; backward twice that.
#include "comm/loopback_device_comm.h"
#include "comm/self_host_comm.h"
#include "layers/moe/moe_layer.h"
#include "tools/bench/inputs.h"
#include "tools/bench/operation.h"

namespace longhaul::bench {
namespace {

constexpr int64_t kBins = 1000;  // of the balancing histogram, as recipes have

MoeLayer layer_of(const Sizes& sizes, DType dtype) {
  return {{.hidden = sizes["D"],
           .num_experts = sizes["E"],
           .top_k = sizes["K"],
           .expert_intermediate = sizes["I"],
           .latent = sizes["L"],
           .shared_intermediate = sizes["I"],
           .activation = {},
           .dtype = dtype}};
}

class MoeCase : public Case {
 public:
  MoeCase(const Sizes& sizes, DType dtype)
      : layer_(layer_of(sizes, dtype)),
        x_(random_tensor(dtype, {sizes["T"], sizes["D"]}, -1, 1, "x")),
        y_(dtype, {sizes["T"], sizes["D"]}),
        bias_(Tensor::zeros(accurate_type(dtype), {sizes["E"]})),
        counts_(Tensor::zeros(DType::I64, {sizes["E"], kBins})),
        load_(Tensor::zeros(DType::I64, {sizes["E"]})) {
    MoeLayer::Weights<ParameterSpec> specs = layer_.weights(group_);
    MoeLayer::for_each(layer_.options, specs, [&](const char* name, const ParameterSpec& spec) {
      const bool is_scale = spec.init == InitKind::Ones;
      memory_.push_back(random_tensor(spec.dtype, spec.shape, is_scale ? 0.5 : -0.1, is_scale ? 1.5 : 0.1, name));
    });
    size_t next = 0;
    MoeLayer::for_each(layer_.options, weights_, [&](const char*, TensorView& view) { view = memory_[next++]; });
    const auto d = static_cast<double>(sizes["D"]), inner = static_cast<double>(sizes["I"]), latent = static_cast<double>(sizes["L"]);
    flops = 2 * static_cast<double>(sizes["T"]) *
            (static_cast<double>(sizes["E"]) * d + 2 * d * latent + static_cast<double>(sizes["K"]) * 3 * latent * inner + 3 * d * inner);
    bytes = weight_bytes() + total_bytes({&x_, &y_});
  }

  void run() override {
    keep_.release({});
    saved_ = layer_.forward(ctx_, keep_, group_, weights_, {.bias = bias_, .forced_experts = {}, .counts = counts_, .load = load_}, x_, y_);
  }

 protected:
  [[nodiscard]] double weight_bytes() const {
    double sum = 0;
    for (const Tensor& tensor : memory_) {
      sum += total_bytes({&tensor});
    }
    return sum;
  }

  SelfHostComm host_;
  LoopbackDeviceComm device_;
  Group group_{"expert", 0, 1, host_, device_};
  MoeLayer layer_;
  std::vector<Tensor> memory_;  // of the weights
  MoeLayer::Weights<TensorView> weights_;
  Tensor x_, y_;                 // [tokens, hidden]
  Tensor bias_, counts_, load_;  // [experts], [experts, bins], [experts]
  Arena keep_{Device{}, "activations", 0, Arena::Growth::Chunked};
  ExecContext ctx_ = ExecContext::cpu();
  MoeLayer::Saved saved_;
};

class MoeBackwardCase final : public MoeCase {
 public:
  MoeBackwardCase(const Sizes& sizes, DType dtype) : MoeCase(sizes, dtype), dx_(dtype, x_.view().shape()) {
    double gradient_bytes = 0;
    for (const Tensor& weight : memory_) {
      gradients_.push_back(Tensor::zeros(gradient_type(dtype, {}), weight.view().shape()));
      gradient_bytes += total_bytes({&gradients_.back()});
    }
    size_t next = 0;
    MoeLayer::for_each(layer_.options, dweights_, [&](const char*, TensorView& view) { view = gradients_[next++]; });
    MoeCase::run();
    flops *= 2;
    // Gradients are read and written; y stands for its gradient.
    bytes += 2 * gradient_bytes + total_bytes({&dx_});
  }

  void run() override { layer_.backward(ctx_, group_, weights_, x_, saved_, y_, dx_, dweights_); }

 private:
  std::vector<Tensor> gradients_;
  MoeLayer::Weights<TensorView> dweights_;
  Tensor dx_;  // [tokens, hidden]
};

}  // namespace

Operation moe_operation() {
  return {.name = "moe",
          .about = "Stable LatentMoE layer on one rank, with balancing",
          .letters = "T tokens, D hidden, E experts, K experts a token, L latent, I inner width of an expert",
          .sizes = {{"T", 2048}, {"D", 256}, {"E", 32}, {"K", 4}, {"L", 128}, {"I", 128}},
          .make = [](const Sizes& sizes, DType dtype, Direction direction) -> std::unique_ptr<Case> {
            if (sizes["K"] > sizes["E"]) {
              throw RecipeError("--shape: K = {} experts a token are more than the E = {} there are", sizes["K"], sizes["E"]);
            }
            if (direction == Direction::Forward) {
              return std::make_unique<MoeCase>(sizes, dtype);
            }
            return std::make_unique<MoeBackwardCase>(sizes, dtype);
          }};
}

}  // namespace longhaul::bench
