// Kimi Delta Attention alone: from normalised queries and keys to outputs, with the states that backward needs.
// FLOPs per token and head: 6 d^2 + 3 C d + C^2 with C = 64 (Kimi Linear, arXiv:2510.26692, eq. 13); backward twice that.
#include <cmath>

#include "kernels/kda/kda.h"
#include "tools/bench/inputs.h"
#include "tools/bench/operation.h"

namespace longhaul::bench {
namespace {

class KdaCase : public Case {
 public:
  KdaCase(const Sizes& sizes, DType dtype, KdaTiles tiles)
      : tiles_(tiles),
        tokens_(sizes["T"]),
        dim_(sizes["D"]),
        wide_{tokens_, sizes["H"], dim_},
        q_(random_tensor(dtype, wide_, -unit(), unit(), "q")),
        k_(random_tensor(dtype, wide_, -unit(), unit(), "k")),
        v_(random_tensor(dtype, wide_, -1, 1, "v")),
        g_(random_tensor(dtype, wide_, tiles == KdaTiles::Dense ? -2 : -20, 0, "g")),
        beta_(random_tensor(dtype, {tokens_, sizes["H"]}, 0, 1, "beta")),
        cu_seqlens_(one_document(tokens_)),
        o_(dtype, wide_),
        chunk_states_(dtype, {kda_state_rows(tokens_, 1, dim_), sizes["H"], dim_, dim_}) {
    const auto d = static_cast<double>(dim_), c = static_cast<double>(kKdaChunk);
    flops = static_cast<double>(tokens_ * sizes["H"]) * (6 * d * d + 3 * c * d + c * c);
    bytes = total_bytes({&q_, &k_, &v_, &g_, &beta_, &o_, &chunk_states_});
  }

  void run() override {
    kda_forward(ctx_, {.q = q_, .k = k_, .v = v_, .g = g_, .beta = beta_, .cu_seqlens = cu_seqlens_, .scale = scale(), .tiles = tiles_,
                       .o = o_, .chunk_states = chunk_states_});
  }

 protected:
  // Rows of this range have a length of about one.
  [[nodiscard]] double unit() const { return std::sqrt(3.0 / static_cast<double>(dim_)); }
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(dim_)); }

  KdaTiles tiles_;
  int64_t tokens_, dim_;
  Shape wide_;                     // [tokens, heads, head_dim]
  Tensor q_, k_, v_, g_;           // [tokens, heads, head_dim]
  Tensor beta_;                    // [tokens, heads]
  Tensor cu_seqlens_;              // i64 [2]
  Tensor o_;                       // [tokens, heads, head_dim]
  Tensor chunk_states_;            // [chunks, heads, head_dim, head_dim]
  ExecContext ctx_ = ExecContext::cpu();
};

class KdaBackwardCase final : public KdaCase {
 public:
  KdaBackwardCase(const Sizes& sizes, DType dtype, KdaTiles tiles)
      : KdaCase(sizes, dtype, tiles), dq_(dtype, wide_), dk_(dtype, wide_), dv_(dtype, wide_), dg_(dtype, wide_), dbeta_(dtype, beta_.view().shape()) {
    KdaCase::run();
    flops *= 2;
    // o stands for its gradient, which has the same size.
    bytes += total_bytes({&dq_, &dk_, &dv_, &dg_, &dbeta_});
  }

  void run() override {
    kda_backward(ctx_, {.d_o = o_, .q = q_, .k = k_, .v = v_, .g = g_, .beta = beta_, .cu_seqlens = cu_seqlens_, .scale = scale(),
                        .tiles = tiles_, .chunk_states = chunk_states_, .dq = dq_, .dk = dk_, .dv = dv_, .dg = dg_, .dbeta = dbeta_});
  }

 private:
  Tensor dq_, dk_, dv_, dg_;  // [tokens, heads, head_dim]
  Tensor dbeta_;              // [tokens, heads]
};

Operation operation_of(const char* name, const char* about, KdaTiles tiles) {
  return {.name = name,
          .about = about,
          .letters = "T tokens, H heads, D head dim",
          .sizes = {{"T", 2048}, {"H", 4}, {"D", 128}},
          .make = [tiles](const Sizes& sizes, DType dtype, Direction direction) -> std::unique_ptr<Case> {
            if (direction == Direction::Forward) {
              return std::make_unique<KdaCase>(sizes, dtype, tiles);
            }
            return std::make_unique<KdaBackwardCase>(sizes, dtype, tiles);
          }};
}

}  // namespace

Operation kda_operation() { return operation_of("kda", "Kimi Delta Attention, chunkwise, one document", KdaTiles::Dense); }
Operation kda_unbounded_operation() {
  return operation_of("kda_unbounded", "the same with gates without a bound (softplus decay)", KdaTiles::Pairwise);
}

}  // namespace longhaul::bench
