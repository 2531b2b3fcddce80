// See synthetic_router.h.
#include "tools/balance_canary/synthetic_router.h"

#include <cmath>

#include "base/cast.h"
#include "base/philox.h"

namespace longhaul {
namespace {

// Streams of random numbers: preferences, then one a step for its tokens.
constexpr uint64_t kPreferences = 1;
constexpr uint64_t kFirstStep = 2;

}  // namespace

SyntheticRouter::SyntheticRouter(const Options& options) : options_(options) {
  const RandomStream stream{.seed = options.seed, .stream = kPreferences};
  for (int64_t e = 0; e < options.experts; ++e) {
    a_.push_back(options.skew * stream.normal(2 * narrow<uint64_t>(e)));
    b_.push_back(options.skew * stream.normal(2 * narrow<uint64_t>(e) + 1));
  }
}

void SyntheticRouter::fill(int64_t step, int64_t first_token, TensorView logits) const {
  const RandomStream stream{.seed = options_.seed, .stream = kFirstStep + narrow<uint64_t>(step)};
  const double angle = options_.drift * static_cast<double>(step);
  std::vector<float> offsets;
  for (size_t e = 0; e < a_.size(); ++e) {
    offsets.push_back(static_cast<float>(std::cos(angle) * a_[e] + std::sin(angle) * b_[e]));
  }
  float* out = logits.data<float>();
  // Four numbers come from one call of the generator; a row begins with a call of its own.
  const int64_t experts = options_.experts;
  const int64_t calls_a_row = ceil_div(experts, 4);
  for (int64_t t = 0; t < logits.size(0); ++t) {
    Philox4 words{};
    for (int64_t e = 0; e < experts; ++e) {
      if (e % 4 == 0) {
        words = stream.words(narrow<uint64_t>((first_token + t) * calls_a_row + e / 4));
      }
      const float u = (static_cast<float>(words[static_cast<size_t>(e % 4)] >> 8) + 0.5f) * 0x1p-24f;
      out[t * experts + e] = offsets[static_cast<size_t>(e)] + std::log(u / (1 - u));
    }
  }
}

}  // namespace longhaul
