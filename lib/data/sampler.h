// The order of a source's documents in one epoch: a keyed permutation of 0 .. n-1, a pure function of (seed, source id,
// epoch, n). Document number `position` of any epoch is computed on the spot, so there is no index array to build, store,
// share between ranks or shuffle twice: every epoch starts from the pristine order.
//
// Method: an unbalanced Feistel network over the a x b grid with a = ceil(sqrt n), b = ceil(n / a), whose rounds add a
// Philox draw of one coordinate to the other; grid cells >= n are walked through again (cycle walking: Black and Rogaway,
// "Ciphers with arbitrary finite domains", CT-RSA 2002), which happens less than once in sqrt(n) draws.
#pragma once

#include <cstdint>

#include "base/enum_names.h"
#include "base/philox.h"

namespace longhaul {

enum class Shuffle { Documents, None };
constexpr EnumNames<Shuffle, 2> enum_names(Shuffle) {
  return {{{Shuffle::Documents, "documents"}, {Shuffle::None, "none"}}};
}

class EpochOrder {
 public:
  // The stored order of the documents, for Shuffle::None; else the permutation of that epoch.
  EpochOrder(Shuffle shuffle, uint64_t seed, int64_t source_id, int64_t epoch, int64_t num_documents);

  // The document at `position`, both in [0, num_documents).
  [[nodiscard]] int64_t document(int64_t position) const;

 private:
  [[nodiscard]] uint64_t permute_cell(uint64_t cell) const;

  Shuffle shuffle_;
  RandomStream stream_;
  uint64_t num_documents_;
  uint64_t rows_ = 1;     // a
  uint64_t columns_ = 1;  // b
};

}  // namespace longhaul
