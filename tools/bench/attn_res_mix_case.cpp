// The mix of Attention Residuals over its sources.
// FLOPs per token, source and channel: 6 forward (square, score, weighted sum), 14 backward (forward's norms and scores
// again, the products with dy, and the two terms of the gradient).
#include "kernels/attn_res_mix/attn_res_mix.h"
#include "tools/bench/inputs.h"
#include "tools/bench/operation.h"

namespace longhaul::bench {
namespace {

class MixCase : public Case {
 public:
  MixCase(const Sizes& sizes, DType dtype)
      : wide_{sizes["T"], sizes["D"]},
        norm_scale_(random_tensor(dtype, {sizes["D"]}, 0.5, 1.5, "norm_scale")),
        query_(random_tensor(dtype, {sizes["D"]}, -0.1, 0.1, "query")),
        y_(dtype, wide_) {
    for (int64_t i = 0; i < sizes["S"]; ++i) {
      sources_.push_back(random_tensor(dtype, wide_, -1, 1, "source"));
      source_views_.push_back(sources_.back());
    }
    elements_ = static_cast<double>(sizes["S"] * wide_.numel());
    flops = 6 * elements_;
    bytes = elements_ * static_cast<double>(size_of(dtype)) + total_bytes({&norm_scale_, &query_, &y_});
  }

  void run() override { attn_res_mix_forward(ctx_, {.sources = source_views_, .norm_scale = norm_scale_, .query = query_, .y = y_}); }

 protected:
  Shape wide_;                  // [tokens, hidden]
  Tensor norm_scale_, query_;   // [hidden]
  Tensor y_;                    // [tokens, hidden]
  std::vector<Tensor> sources_; // each [tokens, hidden]
  std::vector<TensorView> source_views_;
  double elements_ = 0;
  ExecContext ctx_ = ExecContext::cpu();
};

class MixBackwardCase final : public MixCase {
 public:
  MixBackwardCase(const Sizes& sizes, DType dtype)
      : MixCase(sizes, dtype), dnorm_scale_(Tensor::zeros(gradient_type(dtype, {}), {sizes["D"]})), dquery_(Tensor::zeros(gradient_type(dtype, {}), {sizes["D"]})) {
    MixCase::run();
    for (int64_t i = 0; i < sizes["S"]; ++i) {
      dsources_.push_back(Tensor::zeros(accurate_type(dtype), wide_));
      dsource_views_.push_back(dsources_.back());
    }
    flops = 14 * elements_;
    // Gradients of the sources are read and written; y stands for its gradient.
    bytes += 2 * elements_ * static_cast<double>(size_of(accurate_type(dtype)));
  }

  void run() override {
    attn_res_mix_backward(ctx_, {.dy = y_, .sources = source_views_, .norm_scale = norm_scale_, .query = query_, .dsources = dsource_views_,
                                 .dnorm_scale = dnorm_scale_, .dquery = dquery_});
  }

 private:
  std::vector<Tensor> dsources_;  // each [tokens, hidden]
  std::vector<TensorView> dsource_views_;
  Tensor dnorm_scale_, dquery_;   // [hidden]
};

}  // namespace

Operation attn_res_mix_operation() {
  return {.name = "attn_res_mix",
          .about = "Attention Residuals: softmax over earlier blocks",
          .letters = "T tokens, S sources, D hidden",
          .sizes = {{"T", 4096}, {"S", 9}, {"D", 512}},
          .make = [](const Sizes& sizes, DType dtype, Direction direction) -> std::unique_ptr<Case> {
            if (direction == Direction::Forward) {
              return std::make_unique<MixCase>(sizes, dtype);
            }
            return std::make_unique<MixBackwardCase>(sizes, dtype);
          }};
}

}  // namespace longhaul::bench
