// The gated feed-forward layer: y = Wdown f(x Wgate^T, x Wup^T) with SiTU-GLU or SwiGLU. It is the dense layer at the
// bottom of the model and the fused shared experts of every mixture layer.
#pragma once

#include "device/exec_context.h"
#include "kernels/gated_activation/gated_activation.h"
#include "kernels/linear/linear.h"
#include "layers/parameter.h"

namespace longhaul {

struct MlpLayer {
  struct Options {
    int64_t hidden = 0;
    int64_t intermediate = 0;
    Activation activation;
    double init_stddev = 0.02;
    DType dtype = DType::F32;
  };

  template <class T>
  struct Weights {
    T gate_proj, up_proj;  // [intermediate, hidden]
    T down_proj;           // [hidden, intermediate]
  };
  template <class W, class F>
  static void for_each(const Options&, W& w, F&& f) {
    f("gate_proj.weight", w.gate_proj);
    f("up_proj.weight", w.up_proj);
    f("down_proj.weight", w.down_proj);
  }

  struct Saved {
    TensorView gate, up;  // [tokens, intermediate]
    TensorView activated;  // [tokens, intermediate]
  };

  [[nodiscard]] Weights<ParameterSpec> weights() const;
  // y [tokens, hidden] is overwritten, or added to.
  [[nodiscard]] Saved forward(ExecContext& ctx, Arena& keep, const Weights<TensorView>& w, TensorView x, TensorView y,
                              Accumulate accumulate = Accumulate::Overwrite) const;
  // dx [tokens, hidden] is overwritten, or added to; dw accumulated.
  void backward(ExecContext& ctx, const Weights<TensorView>& w, TensorView x, const Saved& saved, TensorView dy, TensorView dx,
                const Weights<TensorView>& dw, Accumulate accumulate_dx = Accumulate::Overwrite) const;

  Options options;
};

}  // namespace longhaul
