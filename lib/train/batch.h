// Micro-batches of one rank on its device: sequences read from the data, packed one after the other.
#pragma once

#include <functional>
#include <vector>

#include "data/data_loader.h"
#include "device/exec_context.h"
#include "model/stage_model.h"
#include "tensor/tensor.h"

namespace longhaul {

class Batches {
 public:
  // `micro_batches` batches of `sequences` sequences each; read(i) gives the i-th of this rank, in order. On a GPU the tensors
  // come from `memory`, which is emptied first, and are copied on the context's stream; the CPU reads them where they are.
  Batches(ExecContext& ctx, Arena& memory, int64_t micro_batches, int64_t sequences, const std::function<Sequence(int64_t)>& read);

  [[nodiscard]] const std::vector<MicroBatch>& views() const noexcept { return views_; }
  [[nodiscard]] int64_t documents() const noexcept { return documents_; }
  // Device memory for `tokens` tokens in `documents` documents of `micro_batches` micro-batches.
  [[nodiscard]] static int64_t memory_bytes(int64_t micro_batches, int64_t tokens, int64_t documents);

 private:
  [[nodiscard]] TensorView place(ExecContext& ctx, Arena& memory, const char* name, Tensor host);

  std::vector<Tensor> owners_;
  std::vector<MicroBatch> views_;
  int64_t documents_ = 0;
};

}  // namespace longhaul
