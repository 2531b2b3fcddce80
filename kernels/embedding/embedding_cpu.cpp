// Row gather, and row scatter-add in token order. All ids are checked before anything is written.
#include "kernels/embedding/embedding_cpu.h"

#include <algorithm>

#include "kernels/add_gradient.h"

namespace longhaul::cpu {
namespace {

void check_ids(std::string_view op, const TensorView& ids, int64_t vocab) {
  const int32_t* id = ids.data<int32_t>();
  for (int64_t t = 0; t < ids.size(0); ++t) {
    if (id[t] < 0 || id[t] >= vocab) {
      throw DataError("{}: token {} has id {}, but the vocabulary has {} entries; check that the data was prepared with "
                      "the tokenizer of this model",
                      op, t, id[t], vocab);
    }
  }
}

}  // namespace

void embedding_forward(const EmbeddingForward& op) {
  check_ids("embedding_forward", op.ids, op.table.size(0));
  dispatch_float(op.table.dtype(), "embedding_forward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t hidden = op.table.size(1);
    const int32_t* ids = op.ids.data<int32_t>();
    for (int64_t t = 0; t < op.ids.size(0); ++t) {
      std::copy_n(op.table.data<T>() + ids[t] * hidden, hidden, op.y.data<T>() + t * hidden);
    }
  });
}

void embedding_backward(const EmbeddingBackward& op) {
  check_ids("embedding_backward", op.ids, op.dtable.size(0));
  dispatch_float(op.dy.dtype(), "embedding_backward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t hidden = op.dy.size(1);
    const int32_t* ids = op.ids.data<int32_t>();
    for (int64_t t = 0; t < op.ids.size(0); ++t) {
      const T* from = op.dy.data<T>() + t * hidden;
      add_to_gradient(op.dtable[ids[t]], hidden, [&](int64_t c) { return from[c]; });
    }
  });
}

}  // namespace longhaul::cpu
