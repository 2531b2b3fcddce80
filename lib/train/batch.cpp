// See batch.h.
#include "train/batch.h"

#include "base/cast.h"

namespace longhaul {

Batches::Batches(int64_t micro_batches, int64_t sequences, const std::function<Sequence(int64_t)>& read) {
  owners_.reserve(static_cast<size_t>(3 * micro_batches));
  for (int64_t m = 0; m < micro_batches; ++m) {
    Sequence packed;
    for (int64_t s = 0; s < sequences; ++s) {
      append(packed, read(m * sequences + s));
    }
    const auto tokens = narrow<int64_t>(packed.tokens.size());
    const auto bounds = narrow<int64_t>(packed.cu_seqlens.size());
    owners_.push_back(Tensor::from(packed.tokens, {tokens}));
    owners_.push_back(Tensor::from(packed.targets, {tokens}));
    owners_.push_back(Tensor::from(packed.cu_seqlens, {bounds}));
    const size_t at = owners_.size() - 3;
    views_.push_back({.ids = owners_[at], .targets = owners_[at + 1], .cu_seqlens = owners_[at + 2]});
    documents_ += bounds - 1;
  }
}

}  // namespace longhaul
