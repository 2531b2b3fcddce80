// Runs of the small operations; see golden_runs.h.
#include <cstring>

#include "kernels/adamw/adamw.h"
#include "kernels/attn_res_mix/attn_res_mix.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/decay_gate/decay_gate.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gated_activation/gated_activation.h"
#include "kernels/gated_rms_norm/gated_rms_norm.h"
#include "kernels/l2_norm/l2_norm.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/short_conv/short_conv.h"
#include "tests/golden/golden_runs.h"
#include "tests/support/compare.h"

namespace longhaul::testing {
namespace {

void run_rms_norm(ExecContext& ctx, GoldenCase& c) {
  const TensorView x = c["in.x"];
  const TensorView inv_rms = c.temporary({x.size(0)});
  rms_norm_forward(ctx, {.x = x, .scale = c["weight.norm.weight"], .eps = c.number("eps"), .y = c.out("y"), .inv_rms = inv_rms});
  rms_norm_backward(ctx, {.dy = c["dy.y"], .x = x, .scale = c["weight.norm.weight"], .inv_rms = inv_rms, .dx = c.grad("in.x"),
                          .dscale = c.grad_sum("weight.norm.weight")});
}

void run_gated_rms_norm(ExecContext& ctx, GoldenCase& c) {
  const TensorView o = c["in.x"];
  const TensorView scale = c["weight.o_norm.weight"];
  const Shape wide{o.size(0), o.size(1) * o.size(2)};
  const TensorView gate = c["in.gate"].reshape(wide);
  const TensorView inv_rms = c.temporary({o.size(0), o.size(1)});
  gated_rms_norm_forward(ctx,
                         {.o = o, .scale = scale, .gate = gate, .eps = c.number("eps"), .y = c.out("y").reshape(wide), .inv_rms = inv_rms});
  gated_rms_norm_backward(ctx, {.dy = c["dy.y"].reshape(wide),
                                .o = o,
                                .scale = scale,
                                .gate = gate,
                                .inv_rms = inv_rms,
                                .d_o = c.grad("in.x"),
                                .dgate = c.grad("in.gate").reshape(wide),
                                .dscale = c.grad_sum("weight.o_norm.weight")});
}

void run_short_conv(ExecContext& ctx, GoldenCase& c) {
  if (c.has("in.history")) {
    // Our convolution starts every document from zeros; it does not take rows from before the first token.
    c.leave_out("");
    return;
  }
  const TensorView x = c["in.x"];
  const Shape taps{x.size(1), c.integer("width")};
  const TensorView weight = c["weight.q_conv1d.weight"].reshape(taps);
  const TensorView bounds = c.cu_seqlens();
  short_conv_forward(ctx, {.x = x, .weight = weight, .cu_seqlens = bounds, .y = c.out("y")});
  short_conv_backward(ctx, {.dy = c["dy.y"], .x = x, .weight = weight, .cu_seqlens = bounds, .dx = c.grad("in.x"),
                            .dweight = c.grad_sum("weight.q_conv1d.weight").reshape(taps)});
}

void run_l2_norm(ExecContext& ctx, GoldenCase& c) {
  const TensorView x = c["in.x"];
  const TensorView y = c.out("y");
  const TensorView inv_norm = c.temporary({x.size(0), x.size(1)});
  LH_CHECK(c.number("eps") == kL2NormEps, "the epsilon is fixed");
  l2_norm_forward(ctx, {.x = x, .y = y, .inv_norm = inv_norm});
  l2_norm_backward(ctx, {.dy = c["dy.y"], .y = y, .inv_norm = inv_norm, .dx = c.grad("in.x")});
}

void run_decay_gate(ExecContext& ctx, GoldenCase& c) {
  const std::optional<double> bound = c.maybe_number("gate_lower_bound");
  const DecayKind kind = bound ? DecayKind::Bounded : DecayKind::Softplus;
  decay_gate_forward(ctx, {.z = c["in.z"], .a_log = c["weight.A_log"], .dt_bias = c["weight.dt_bias"], .kind = kind,
                           .lower_bound = bound.value_or(-1), .g = c.out("g")});
  decay_gate_backward(ctx, {.dg = c["dy.g"], .z = c["in.z"], .a_log = c["weight.A_log"], .dt_bias = c["weight.dt_bias"], .kind = kind,
                            .lower_bound = bound.value_or(-1), .dz = c.grad("in.z"), .da_log = c.grad_sum("weight.A_log"),
                            .ddt_bias = c.grad_sum("weight.dt_bias")});
}

void run_gated_activation(ExecContext& ctx, GoldenCase& c) {
  const bool is_situ = c.text("hidden_act") == "situ";
  const Activation activation{.kind = is_situ ? ActivationKind::SituGlu : ActivationKind::SwiGlu,
                              .beta_gate = is_situ ? c.number("activation_situ_beta") : 1,
                              .beta_up = is_situ ? c.number("activation_situ_linear_beta") : 1};
  gated_activation_forward(ctx, {.gate = c["in.gate"], .up = c["in.up"], .activation = activation, .y = c.out("y")});
  gated_activation_backward(ctx, {.dy = c["dy.y"], .gate = c["in.gate"], .up = c["in.up"], .activation = activation,
                                  .dgate = c.grad("in.gate"), .dup = c.grad("in.up")});
}

std::vector<TensorView> rows_of(const TensorView& stack) {
  std::vector<TensorView> rows;
  for (int64_t i = 0; i < stack.size(0); ++i) {
    rows.push_back(stack[i]);
  }
  return rows;
}

void run_attn_res_mix(ExecContext& ctx, GoldenCase& c) {
  const std::vector<TensorView> sources = rows_of(c["in.sources"]);
  const std::vector<TensorView> dsources = rows_of(c.grad_sum("in.sources", c.dtype()));
  const TensorView query = c["weight.res_proj.weight"][0];
  attn_res_mix_forward(
      ctx, {.sources = sources, .norm_scale = c["weight.res_norm.weight"], .query = query, .eps = c.number("eps"), .y = c.out("h")});
  attn_res_mix_backward(ctx, {.dy = c["dy.h"], .sources = sources, .norm_scale = c["weight.res_norm.weight"], .query = query,
                              .eps = c.number("eps"), .dsources = dsources, .dnorm_scale = c.grad_sum("weight.res_norm.weight"),
                              .dquery = c.grad_sum("weight.res_proj.weight")[0]});
  c.leave_out("out.mixing_weights");  // stay inside the operation
}

void run_embedding(ExecContext& ctx, GoldenCase& c) {
  embedding_forward(ctx, {.ids = c["in.input_ids"], .table = c["weight.embed_tokens.weight"], .y = c.out("y")});
  embedding_backward(ctx, {.dy = c["dy.y"], .ids = c["in.input_ids"], .dtable = c.grad_sum("weight.embed_tokens.weight")});
}

// The file's loss is the sum over the targets here divided by the targets of the whole step, and so are its gradients.
void run_cross_entropy(ExecContext& ctx, GoldenCase& c, int64_t chunk_tokens) {
  const double global_tokens = c.number("global_tokens");
  Tensor loss_sum = Tensor::from(std::vector<double>{0.25}, {1});  // accumulated
  LinearCrossEntropy op{.targets = c["in.targets"], .grad_scale = 1 / global_tokens, .chunk_tokens = chunk_tokens, .loss_sum = loss_sum};
  if (c.has("in.x")) {
    op.x = c["in.x"];
    op.weight = c["weight.lm_head.weight"];
    op.dx = c.grad("in.x");
    op.dweight = c.grad_sum("weight.lm_head.weight");
  } else {
    // Logits are given: the head is the identity.
    op.x = c["in.logits"];
    const int64_t vocab = op.x.size(1);
    std::vector<double> identity(static_cast<size_t>(vocab * vocab));
    for (int64_t i = 0; i < vocab; ++i) {
      identity[static_cast<size_t>(i * (vocab + 1))] = 1;
    }
    op.weight = c.tensor(identity, {vocab, vocab});
    op.dx = c.grad("in.logits");
    op.dweight = c.temporary(DType::F64, {vocab, vocab});
  }
  linear_cross_entropy(ctx, op);
  const double sum = loss_sum.values<double>()[0] - 0.25;
  c.expect("out.loss_sum", {sum});
  c.expect("out.loss", {sum / global_tokens});
  c.leave_out("out.valid_tokens");  // counted by the data loader
}

// The state is carried through all steps; row t of the outputs is the state after step t + 1.
void run_adamw(ExecContext& ctx, GoldenCase& c) {
  const TensorView gradients = c["in.grad"];
  const std::vector<double> rates = to_doubles(c["in.learning_rate"]);
  const TensorView parameters = c.out("param"), m = c.out("exp_avg"), v = c.out("exp_avg_sq");
  const auto bytes = static_cast<size_t>(m[0].bytes());
  std::memcpy(parameters[0].raw(), c["in.param"].raw(), bytes);
  std::memset(m[0].raw(), 0, bytes);
  std::memset(v[0].raw(), 0, bytes);
  for (int64_t t = 0; t < gradients.size(0); ++t) {
    for (const TensorView& state : {parameters, m, v}) {
      if (t > 0) {
        std::memcpy(state[t].raw(), state[t - 1].raw(), bytes);
      }
    }
    adamw(ctx, {.parameter = parameters[t],
                .gradient = gradients[t],
                .m = m[t],
                .v = v[t],
                .learning_rate = rates[static_cast<size_t>(t)],
                .beta1 = c.number("beta1"),
                .beta2 = c.number("beta2"),
                .eps = c.number("eps"),
                .weight_decay = c.number("weight_decay"),
                .step = t + 1});
  }
}

GoldenRun cross_entropy_in_chunks(int64_t chunk_tokens) {
  return [chunk_tokens](ExecContext& ctx, GoldenCase& c) { run_cross_entropy(ctx, c, chunk_tokens); };
}

}  // namespace

GoldenRuns basic_runs() {
  return {{"rms_norm", run_rms_norm},
          {"gated_rms_norm", run_gated_rms_norm},
          {"short_conv", run_short_conv},
          {"l2_norm", run_l2_norm},
          {"decay_gate", run_decay_gate},
          {"situ_glu", run_gated_activation},
          {"swiglu", run_gated_activation},
          {"attn_res_mix", run_attn_res_mix},
          {"embedding", run_embedding},
          {"cross_entropy", cross_entropy_in_chunks(1024)},
          {"cross_entropy", cross_entropy_in_chunks(2)},
          {"adamw", run_adamw}};
}

}  // namespace longhaul::testing
