// Causal softmax attention with the widths of multi-head latent attention.
// FLOPs: pairs below the diagonal, T (T + 1) / 2 a head, times 2 (K + V) forward and 2 (3 K + 2 V) backward, where the
// scores are computed again.
#include <cmath>

#include "kernels/attention/attention.h"
#include "tools/bench/inputs.h"
#include "tools/bench/operation.h"

namespace longhaul::bench {
namespace {

class AttentionCase : public Case {
 public:
  AttentionCase(const Sizes& sizes, DType dtype)
      : keys_{sizes["T"], sizes["H"], sizes["K"]},
        values_{sizes["T"], sizes["H"], sizes["V"]},
        q_(random_tensor(dtype, keys_, -1, 1, "q")),
        k_(random_tensor(dtype, keys_, -1, 1, "k")),
        v_(random_tensor(dtype, values_, -1, 1, "v")),
        cu_seqlens_(one_document(sizes["T"])),
        o_(accurate_type(dtype), values_),
        lse_(accurate_type(dtype), {sizes["T"], sizes["H"]}),
        scale_(1 / std::sqrt(static_cast<double>(sizes["K"]))) {
    flops = pairs() * 2 * static_cast<double>(sizes["K"] + sizes["V"]);
    bytes = total_bytes({&q_, &k_, &v_, &o_, &lse_});
  }

  void run() override {
    attention_forward(ctx_, {.q = q_, .k = k_, .v = v_, .cu_seqlens = cu_seqlens_, .scale = scale_, .o = o_, .lse = lse_});
  }

 protected:
  [[nodiscard]] double pairs() const {
    const auto tokens = static_cast<double>(keys_[0]);
    return static_cast<double>(keys_[1]) * tokens * (tokens + 1) / 2;
  }

  Shape keys_, values_;  // [tokens, heads, key_dim], [tokens, heads, value_dim]
  Tensor q_, k_, v_;
  Tensor cu_seqlens_;  // i64 [2]
  Tensor o_, lse_;     // [tokens, heads, value_dim], [tokens, heads]
  double scale_;
  ExecContext ctx_ = ExecContext::cpu();
};

class AttentionBackwardCase final : public AttentionCase {
 public:
  AttentionBackwardCase(const Sizes& sizes, DType dtype)
      : AttentionCase(sizes, dtype), d_o_(random_tensor(dtype, values_, -1, 1, "d_o")), dq_(dtype, keys_), dk_(dtype, keys_), dv_(dtype, values_) {
    AttentionCase::run();
    flops = pairs() * 2 * static_cast<double>(3 * sizes["K"] + 2 * sizes["V"]);
    bytes += total_bytes({&d_o_, &dq_, &dk_, &dv_});
  }

  void run() override {
    attention_backward(ctx_, {.d_o = d_o_, .q = q_, .k = k_, .v = v_, .o = o_, .lse = lse_, .cu_seqlens = cu_seqlens_, .scale = scale_,
                              .dq = dq_, .dk = dk_, .dv = dv_});
  }

 private:
  Tensor d_o_;            // [tokens, heads, value_dim]
  Tensor dq_, dk_, dv_;   // as q, k, v
};

}  // namespace

Operation attention_operation() {
  return {.name = "attention",
          .about = "causal attention of gated MLA, one document",
          .letters = "T tokens, H heads, K key dim, V value dim",
          .sizes = {{"T", 2048}, {"H", 4}, {"K", 192}, {"V", 128}},
          .make = [](const Sizes& sizes, DType dtype, Direction direction) -> std::unique_ptr<Case> {
            if (direction == Direction::Forward) {
              return std::make_unique<AttentionCase>(sizes, dtype);
            }
            return std::make_unique<AttentionBackwardCase>(sizes, dtype);
          }};
}

}  // namespace longhaul::bench
