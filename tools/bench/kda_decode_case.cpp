// One token of Kimi Delta Attention for each of B sequences, states updated in place (kernels/kda/kda_decode.h).
// FLOPs per state element: 1 for the decay, 2 to read it with k, 2 to write it, 2 to read it with q.
#include <cmath>

#include "kernels/kda/kda_decode.h"
#include "tools/bench/inputs.h"
#include "tools/bench/operation.h"

namespace longhaul::bench {
namespace {

class KdaDecodeCase final : public Case {
 public:
  KdaDecodeCase(const Sizes& sizes, DType dtype)
      : wide_{sizes["B"], sizes["H"], sizes["D"]},
        q_(random_tensor(dtype, wide_, -unit(), unit(), "q")),
        k_(random_tensor(dtype, wide_, -unit(), unit(), "k")),
        v_(random_tensor(dtype, wide_, -1, 1, "v")),
        g_(random_tensor(dtype, wide_, -2, 0, "g")),
        beta_(random_tensor(dtype, {wide_[0], wide_[1]}, 0, 1, "beta")),
        state_(random_tensor(dtype, {wide_[0], wide_[1], wide_[2], wide_[2]}, -1, 1, "state")),
        o_(dtype, wide_) {
    flops = 7 * static_cast<double>(state_.view().numel());
    bytes = total_bytes({&q_, &k_, &v_, &g_, &beta_, &state_, &state_, &o_});  // states are read and written
  }

  void run() override {
    kda_decode(ctx_, {.q = q_, .k = k_, .v = v_, .g = g_, .beta = beta_, .scale = 1 / std::sqrt(static_cast<double>(wide_[2])),
                      .state = state_, .o = o_});
  }

 private:
  // Rows of this range have a length of about one.
  [[nodiscard]] double unit() const { return std::sqrt(3.0 / static_cast<double>(wide_[2])); }

  Shape wide_;            // [sequences, heads, head_dim]
  Tensor q_, k_, v_, g_;  // [sequences, heads, head_dim]
  Tensor beta_;           // [sequences, heads]
  Tensor state_;          // [sequences, heads, head_dim, head_dim]
  Tensor o_;              // [sequences, heads, head_dim]
  ExecContext ctx_ = ExecContext::cpu();
};

}  // namespace

Operation kda_decode_operation() {
  return {.name = "kda_decode",
          .about = "Kimi Delta Attention, one token a sequence",
          .letters = "B sequences, H heads, D head dim",
          .sizes = {{"B", 4}, {"H", 8}, {"D", 128}},
          .make = [](const Sizes& sizes, DType dtype, Direction) -> std::unique_ptr<Case> {
            return std::make_unique<KdaDecodeCase>(sizes, dtype);
          },
          .directions = {Direction::Forward}};
}

}  // namespace longhaul::bench
