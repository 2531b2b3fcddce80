"""Whole models in the released layouts: Kimi K3 and Kimi Linear, from token ids to logits and loss.

Weights are one flat dictionary with the released tensor names after the "language_model." of K3 is taken off. The order
of the Attention-Residual steps is that of the released K3 model: at the first layer of a block the finished block takes
part in the mix and is closed after it, and the block starts again from the attention's output.
"""
import jax
import jax.numpy as jnp
import numpy as np

from formulas import attn_res, basic, kda, mla, moe


def read_config(config):
    """The options that the formulas need, from a K3 config.json (its text_config) or a Kimi-Linear one."""
    text = dict(config.get("text_config", config))
    linear_attention = text["linear_attn_config"]
    text["full_layers"] = {layer - 1 for layer in linear_attention["full_attn_layers"]}
    text["kda_options"] = {
        "num_heads": linear_attention["num_heads"],
        "head_dim": linear_attention["head_dim"],
        "rms_norm_eps": text["rms_norm_eps"],
        "gate_lower_bound": linear_attention.get("gate_lower_bound"),
    }
    text.setdefault("routed_scaling_factor", 1.0)
    return text


def below(weights, prefix):
    """The weights under prefix, by their short names."""
    return {name[len(prefix):]: value for name, value in weights.items() if name.startswith(prefix)}


def attention_layer(layer, x, weights, options, cu_seqlens):
    if layer in options["full_layers"]:
        return mla.mla_layer(x, weights, options, cu_seqlens)
    return kda.kda_layer(x, weights, options["kda_options"], cu_seqlens)


def feed_forward_layer(layer, x, weights, options):
    """Returns the output and, for a MoE layer, (routes, ranked scores); None for a dense one."""
    if layer < options["first_k_dense_replace"]:
        return basic.mlp(x, below(weights, "mlp."), options), None
    y, routes, _, ranked = moe.moe_layer(x, below(weights, "block_sparse_moe."), options)
    return y, (routes, ranked)


def forward(weights, input_ids, cu_seqlens, options):
    """Logits [tokens, vocabulary] and {layer: (routes [tokens, top_k], ranked scores [tokens, top_k + 1])}."""
    eps, block_size = options["rms_norm_eps"], options.get("attn_res_block_size")

    def mixed(sources, site):
        return attn_res.mix(jnp.stack(sources), weights[site + "norm.weight"], weights[site + "proj.weight"], eps)[0]

    stream = basic.embedding(input_ids, weights["model.embed_tokens.weight"])
    blocks, routing = [], {}
    for layer in range(options["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        own = below(weights, prefix)
        x = mixed(blocks + [stream], prefix + "self_attention_res_") if block_size and blocks else stream
        x = basic.rms_norm(x, own["input_layernorm.weight"], eps)
        attended = attention_layer(layer, x, below(own, "self_attn."), options, cu_seqlens)
        if block_size and layer % block_size == 0:
            blocks.append(stream)
            stream = attended
        else:
            stream = stream + attended
        x = mixed(blocks + [stream], prefix + "mlp_res_") if block_size else stream
        x = basic.rms_norm(x, own["post_attention_layernorm.weight"], eps)
        y, routed = feed_forward_layer(layer, x, own, options)
        stream = stream + y
        if routed is not None:
            routing[layer] = routed
    if block_size:
        stream = mixed(blocks + [stream], "model.output_attn_res_")
    stream = basic.rms_norm(stream, weights["model.norm.weight"], eps)
    return basic.linear(stream, weights["lm_head.weight"]), routing


def has_gradient(name):
    """False for what no gradient reaches: the balancing biases, and layer 0's attention site, which has one source."""
    return not (name.endswith("e_score_correction_bias") or name.startswith("model.layers.0.self_attention_res_"))


def evaluate(weights, input_ids, targets, cu_seqlens, options):
    """Runs the model forward and backward.

    Returns the mean loss over the tokens with a target, logits, {layer: (routes, ranked scores)} and the gradients of
    the loss by name.
    """
    count = int(np.sum(targets != basic.IGNORED_TARGET))

    def loss_of(parameters):
        logits, routing = forward(parameters, input_ids, cu_seqlens, options)
        return basic.cross_entropy_sum(logits, targets) / count, (logits, routing)

    # Compiling the whole is several times faster than running the many small operations one by one.
    (loss, (logits, routing)), grads = jax.jit(jax.value_and_grad(loss_of, has_aux=True))(weights)
    return loss, logits, routing, {name: grad for name, grad in grads.items() if has_gradient(name)}
