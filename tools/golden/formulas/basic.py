"""Norms, activations, the short convolution, the dense feed-forward layer, embedding and loss.

These are the small pieces that the layers in kda.py, mla.py, moe.py and model.py are made of.
"""
import jax
import jax.numpy as jnp
import numpy as np

IGNORED_TARGET = -100


def linear(x, weight):
    """[tokens, in] times the transpose of weight [out, in]; the released checkpoints have no biases."""
    return x @ weight.T


def rms_norm(x, weight, eps):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def gated_rms_norm(x, gate, weight, eps):
    """RMS norm over each head times sigmoid(gate), Kimi K3 eq. 6. x, gate [tokens, heads, head_dim], weight [head_dim]."""
    return rms_norm(x, weight, eps) * jax.nn.sigmoid(gate)


def l2_norm(x, eps):
    """x / sqrt(sum(x^2) + eps) over the last axis: a sum, not a mean, with eps inside the root."""
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + eps)


def document_starts(cu_seqlens):
    """For every token the position at which its document starts, [tokens] (NumPy: boundaries are never traced)."""
    lengths = np.diff(cu_seqlens)
    return np.repeat(np.asarray(cu_seqlens)[:-1], lengths)


def short_conv(x, weight, cu_seqlens, history=None):
    """SiLU of the depthwise causal convolution, reset at document starts.

    x [tokens, channels]; weight [channels, 1, width], whose last tap meets the present token.
    history [width - 1, channels]: the rows before the first token, where the first document began earlier.
    """
    tokens, channels = x.shape
    width = weight.shape[-1]
    begin = document_starts(cu_seqlens)
    if history is None:
        history = jnp.zeros((width - 1, channels))
    else:
        begin = np.where(begin == 0, 1 - width, begin)
    padded = jnp.concatenate([history, x])
    total = jnp.zeros_like(x)
    for tap in range(width):
        source = np.arange(tokens) - (width - 1) + tap
        visible = jnp.asarray(source >= begin)[:, None]
        total = total + jnp.where(visible, padded[tap:tap + tokens], 0.0) * weight[:, 0, tap]
    return jax.nn.silu(total)


def situ_glu(gate, up, beta, linear_beta):
    """SiTU-GLU, Kimi K3 eq. 12: beta tanh(gate/beta) sigmoid(gate) * linear_beta tanh(up/linear_beta)."""
    return beta * jnp.tanh(gate / beta) * jax.nn.sigmoid(gate) * linear_beta * jnp.tanh(up / linear_beta)


def swiglu(gate, up):
    """SwiGLU: silu(gate) * up."""
    return jax.nn.silu(gate) * up


def gated_activation(gate, up, options):
    """Chooses by options["hidden_act"]: "situ" with its two betas, or "silu"."""
    if options["hidden_act"] == "situ":
        return situ_glu(gate, up, options["activation_situ_beta"], options["activation_situ_linear_beta"])
    if options["hidden_act"] == "silu":
        return swiglu(gate, up)
    raise ValueError(f"hidden_act must be situ or silu, got {options['hidden_act']}")


def mlp(x, weights, options, prefix=""):
    """The dense feed-forward layer, also the shared experts. x [tokens, hidden]."""
    gate = linear(x, weights[prefix + "gate_proj.weight"])
    up = linear(x, weights[prefix + "up_proj.weight"])
    return linear(gated_activation(gate, up, options), weights[prefix + "down_proj.weight"])


def embedding(input_ids, weight):
    """Rows of weight [vocabulary, hidden] by input_ids [tokens]."""
    return weight[input_ids]


def cross_entropy_sum(logits, targets):
    """Sum over the tokens with a target of log-sum-exp(logits) minus the target's logit. logits [tokens, vocabulary]."""
    valid = targets != IGNORED_TARGET
    picked = jnp.take_along_axis(logits, np.where(valid, targets, 0)[:, None], axis=-1)[:, 0]
    return jnp.sum(jnp.where(valid, jax.nn.logsumexp(logits, axis=-1) - picked, 0.0))
