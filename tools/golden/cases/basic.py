"""Golden cases of the small pieces: norms, activations, short convolution, dense layer, embedding, loss."""
import jax
import numpy as np

from case import differentiated, flat, matrix, norm_weight, normal, packed, single, tensor_case
from formulas import basic


def rms_norm(rng, options, tokens, hidden, size=1.0):
    x = normal(rng, tokens, hidden, std=size)
    x[1] = 0.0   # a zero row: only eps keeps it finite

    def run(inputs, weights):
        return {"y": basic.rms_norm(inputs["x"], weights["norm.weight"], options["eps"])}, {}

    return differentiated(rng, run, {"x": x}, {"norm.weight": norm_weight(rng, hidden)})


def gated_rms_norm(rng, options):
    tokens, heads, head_dim = 9, 3, 16
    inputs = {"x": normal(rng, tokens, heads, head_dim), "gate": normal(rng, tokens, heads, head_dim, std=2.0)}
    inputs["x"][2, 1] = 0.0
    inputs["gate"][3, 0, :4] = [-40.0, 40.0, -8.0, 8.0]

    def run(inputs, weights):
        return {"y": basic.gated_rms_norm(inputs["x"], inputs["gate"], weights["o_norm.weight"], options["eps"])}, {}

    return differentiated(rng, run, inputs, {"o_norm.weight": norm_weight(rng, head_dim)})


def short_conv(rng, options, lengths, with_history=False):
    channels, cu_seqlens = 10, packed(*lengths)
    inputs = {"x": normal(rng, int(cu_seqlens[-1]), channels)}
    if with_history:
        inputs["history"] = normal(rng, options["width"] - 1, channels)

    def run(inputs, weights):
        return {"y": basic.short_conv(inputs["x"], weights["q_conv1d.weight"], cu_seqlens, inputs.get("history"))}, {}

    weights = {"q_conv1d.weight": normal(rng, channels, 1, options["width"], std=0.5)}
    return differentiated(rng, run, inputs, weights, {"cu_seqlens": cu_seqlens})


def l2_norm(rng, options):
    x = normal(rng, 7, 3, 12)
    x[1, 2] = 0.0
    x[4, 0] *= single(1e-3)   # here eps is as large as the sum of squares

    def run(inputs, weights):
        return {"y": basic.l2_norm(inputs["x"], options["eps"])}, {}

    return differentiated(rng, run, {"x": x})


def activation(rng, options):
    gate, up = normal(rng, 6, 14, std=2.0), normal(rng, 6, 14, std=8.0)
    gate[0, :6] = [0.0, 300.0, -300.0, 40.0, -40.0, 1e-4]   # saturated ends and the middle
    up[0, :6] = [0.0, 300.0, -300.0, -60.0, 60.0, 1e-4]
    gate, up = single(gate), single(up)

    def run(inputs, weights):
        return {"y": basic.gated_activation(inputs["gate"], inputs["up"], options)}, {}

    return differentiated(rng, run, {"gate": gate, "up": up})


def mlp(rng, options):
    tokens, hidden, width = 9, 12, 20
    weights = {"gate_proj.weight": matrix(rng, width, hidden, gain=2.0), "up_proj.weight": matrix(rng, width, hidden, gain=2.0),
               "down_proj.weight": matrix(rng, hidden, width)}

    def run(inputs, weights):
        return {"y": basic.mlp(inputs["x"], weights, options)}, {}

    return differentiated(rng, run, {"x": normal(rng, tokens, hidden)}, weights)


def embedding(rng, options):
    vocabulary, hidden = 11, 6
    input_ids = np.array([3, 0, 10, 3, 3, 7, 0, 9], np.int32)   # repeats add up; ids 1, 2, 4, 5, 6, 8 get no gradient

    def run(inputs, weights):
        return {"y": basic.embedding(input_ids, weights["embed_tokens.weight"])}, {}

    return differentiated(rng, run, {}, {"embed_tokens.weight": normal(rng, vocabulary, hidden)}, {"input_ids": input_ids})


def cross_entropy(rng, options, targets, with_head=False):
    """loss = sum over valid targets / global_tokens. The upstream gradient is that of the loss itself, and is one."""
    vocabulary, hidden = 13, 8
    targets = np.array(targets, np.int32)
    tokens, valid = len(targets), int(np.sum(targets != basic.IGNORED_TARGET))
    if with_head:
        inputs, weights = {"x": normal(rng, tokens, hidden, std=2.0)}, {"lm_head.weight": matrix(rng, vocabulary, hidden, gain=2.0)}
    else:
        inputs, weights = {"logits": normal(rng, tokens, vocabulary, std=3.0)}, {}
        inputs["logits"][0, :3] = [200.0, -200.0, 100.0]   # a log-sum-exp without the maximum taken off overflows in float32

    def run(inputs, weights):
        logits = basic.linear(inputs["x"], weights["lm_head.weight"]) if with_head else inputs["logits"]
        total = basic.cross_entropy_sum(logits, targets)
        return total / options["global_tokens"], total

    (loss, total), (grad_inputs, grad_weights) = jax.jit(jax.value_and_grad(run, argnums=(0, 1), has_aux=True))(inputs, weights)
    groups = {"in.": {**inputs, "targets": targets}, "weight.": weights, "grad.in.": grad_inputs, "grad.weight.": grad_weights,
              "out.": {"loss": loss.reshape(1), "loss_sum": total.reshape(1), "valid_tokens": np.array([valid])}}
    return flat(groups)


def rms_norm_of(**shape):
    return lambda rng, options: rms_norm(rng, options, **shape)


def short_conv_of(*lengths, with_history=False):
    return lambda rng, options: short_conv(rng, options, lengths, with_history)


def cross_entropy_of(*targets, with_head=False):
    return lambda rng, options: cross_entropy(rng, options, targets, with_head)


SITU = {"hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0}
NONE = basic.IGNORED_TARGET

CASES = [
    tensor_case("rms_norm", "layer", 1001, "a layer's norm, with one zero row", rms_norm_of(tokens=7, hidden=24), eps=1e-5),
    tensor_case("rms_norm", "small_values", 1002, "values as small as the root of eps, odd width",
                rms_norm_of(tokens=5, hidden=19, size=1e-3), eps=1e-6),
    tensor_case("gated_rms_norm", "heads", 1003, "norm over each head with one weight for all heads; saturated gates",
                gated_rms_norm, eps=1e-5),
    tensor_case("short_conv", "packed", 1004, "documents shorter, as long as and longer than the kernel",
                short_conv_of(1, 2, 3, 4, 0, 5, 9), width=4),
    tensor_case("short_conv", "history", 1005, "the first document began three rows earlier",
                short_conv_of(2, 6, with_history=True), width=4),
    tensor_case("l2_norm", "heads", 1006, "with a zero vector and one as small as the root of eps", l2_norm, eps=1e-6),
    tensor_case("situ_glu", "values", 1007, "random and saturated values", activation, **SITU),
    tensor_case("swiglu", "values", 1008, "random and extreme values", activation, hidden_act="silu"),
    tensor_case("mlp", "situ", 1009, "dense layer with SiTU-GLU", mlp, **SITU),
    tensor_case("mlp", "silu", 1010, "dense layer with SwiGLU", mlp, hidden_act="silu"),
    tensor_case("embedding", "repeated_ids", 1011, "ids that repeat and ids that are absent", embedding),
    tensor_case("cross_entropy", "masked", 1012, "six valid targets here, twenty in the whole step",
                cross_entropy_of(4, NONE, 0, 12, 7, NONE, 7, 3, NONE), global_tokens=20),
    tensor_case("cross_entropy", "all_ignored", 1013, "no target at all: loss and gradients are zero",
                cross_entropy_of(NONE, NONE, NONE), global_tokens=20),
    tensor_case("cross_entropy", "with_head", 1014, "through the output projection",
                cross_entropy_of(1, 2, NONE, 12, 0, 5, 5, with_head=True), global_tokens=15),
]
