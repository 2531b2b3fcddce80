// Micro-batches of one rank, in memory: sequences read from the data, packed one after the other.
#pragma once

#include <functional>
#include <vector>

#include "data/data_loader.h"
#include "model/stage_model.h"
#include "tensor/tensor.h"

namespace longhaul {

class Batches {
 public:
  // `micro_batches` batches of `sequences` sequences each; read(i) gives the i-th of this rank, in order.
  Batches(int64_t micro_batches, int64_t sequences, const std::function<Sequence(int64_t)>& read);

  [[nodiscard]] const std::vector<MicroBatch>& views() const noexcept { return views_; }
  [[nodiscard]] int64_t documents() const noexcept { return documents_; }

 private:
  std::vector<Tensor> owners_;
  std::vector<MicroBatch> views_;
  int64_t documents_ = 0;
};

}  // namespace longhaul
