// A linear map, y = x W^T, and both gradients. FLOPs: 2 T I O forward, twice that backward.
#include "kernels/linear/linear.h"
#include "tools/bench/inputs.h"
#include "tools/bench/operation.h"

namespace longhaul::bench {
namespace {

class LinearCase : public Case {
 public:
  LinearCase(const Sizes& sizes, DType dtype)
      : x_(random_tensor(dtype, {sizes["T"], sizes["I"]}, -1, 1, "x")),
        weight_(random_tensor(dtype, {sizes["O"], sizes["I"]}, -0.1, 0.1, "weight")),
        y_(dtype, {sizes["T"], sizes["O"]}) {
    flops = 2 * static_cast<double>(sizes["T"]) * static_cast<double>(sizes["I"] * sizes["O"]);
    bytes = total_bytes({&x_, &weight_, &y_});
  }

  void run() override { linear_forward(ctx_, {.x = x_, .weight = weight_, .y = y_}); }

 protected:
  Tensor x_;       // [tokens, in]
  Tensor weight_;  // [out, in]
  Tensor y_;       // [tokens, out]
  ExecContext ctx_ = ExecContext::cpu();
};

class LinearBackwardCase final : public LinearCase {
 public:
  LinearBackwardCase(const Sizes& sizes, DType dtype)
      : LinearCase(sizes, dtype), dx_(dtype, x_.view().shape()), dweight_(Tensor::zeros(gradient_type(dtype, {}), weight_.view().shape())) {
    LinearCase::run();
    flops *= 2;
    // The gradient of the weight is read and written; y stands for its gradient.
    bytes += total_bytes({&dx_, &dweight_, &dweight_});
  }

  void run() override { linear_backward(ctx_, {.dy = y_, .x = x_, .weight = weight_, .dx = dx_, .dweight = dweight_}); }

 private:
  Tensor dx_;       // [tokens, in]
  Tensor dweight_;  // [out, in], gradient type
};

}  // namespace

Operation linear_operation() {
  return {.name = "linear",
          .about = "a linear map; backward gives both gradients",
          .letters = "T tokens, I inputs, O outputs",
          .sizes = {{"T", 4096}, {"I", 512}, {"O", 512}},
          .make = [](const Sizes& sizes, DType dtype, Direction direction) -> std::unique_ptr<Case> {
            if (direction == Direction::Forward) {
              return std::make_unique<LinearCase>(sizes, dtype);
            }
            return std::make_unique<LinearBackwardCase>(sizes, dtype);
          }};
}

}  // namespace longhaul::bench
