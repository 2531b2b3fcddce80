"""Kimi Delta Attention: decay gates, the recurrence, and the whole layer (Kimi Linear eq. 1; Kimi K3 eq. 1, 2, 5, 6).

The recurrence is the plain one, token by token with lax.scan: the state decays first, the delta rule reads the decayed
state, and the output reads the updated state. The chunkwise form is deliberately absent; it is what is being tested.
"""
import jax
import jax.numpy as jnp
import numpy as np

from formulas.basic import document_starts, gated_rms_norm, l2_norm, linear, short_conv

L2_NORM_EPS = 1e-6


def bounded_decay(z, a_log, dt_bias, lower_bound):
    """Log-decay g = lower_bound * sigmoid(exp(A_log) (z + dt_bias)), K3 eq. 5.

    z [tokens, heads, head_dim], a_log [heads], dt_bias [heads * head_dim] with the head outermost.
    """
    biased = z + dt_bias.reshape(z.shape[1:])
    return lower_bound * jax.nn.sigmoid(jnp.exp(a_log.reshape(-1, 1)) * biased)


def softplus_decay(z, a_log, dt_bias):
    """Log-decay g = -exp(A_log) softplus(z + dt_bias), Kimi Linear. Shapes as in bounded_decay."""
    biased = z + dt_bias.reshape(z.shape[1:])
    return -jnp.exp(a_log.reshape(-1, 1)) * jax.nn.softplus(biased)


def recurrence(q, k, v, g, beta, initial_state, cu_seqlens):
    """The recurrence over packed documents; the scale head_dim^-1/2 is applied to q here.

    q, k, g [tokens, heads, K]; v [tokens, heads, V]; beta [tokens, heads]; initial_state [documents, heads, K, V].
    Returns o [tokens, heads, V] and the final state [documents, heads, K, V]; that of an empty document is its initial one.
    """
    scale = q.shape[-1] ** -0.5
    lengths = np.diff(cu_seqlens)
    document = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.arange(len(document)) == document_starts(cu_seqlens)

    def step(state, token):
        q_t, k_t, v_t, g_t, beta_t, start, own_initial = token
        state = jnp.where(start, own_initial, state)
        state = jnp.exp(g_t)[:, :, None] * state
        error = v_t - jnp.einsum("hk,hkv->hv", k_t, state)
        state = state + beta_t[:, None, None] * k_t[:, :, None] * error[:, None, :]
        return state, (jnp.einsum("hk,hkv->hv", scale * q_t, state), state)

    zero = jnp.zeros(initial_state.shape[1:])
    _, (o, states) = jax.lax.scan(step, zero, (q, k, v, g, beta, jnp.asarray(starts), initial_state[document]))
    last = np.maximum(np.asarray(cu_seqlens)[1:] - 1, 0)
    empty = jnp.asarray(lengths == 0)[:, None, None, None]
    return o, jnp.where(empty, initial_state, states[last])


def kda_layer(x, weights, options, cu_seqlens):
    """One KDA layer from its normed input x [tokens, hidden] to its output [tokens, hidden].

    options: num_heads, head_dim, rms_norm_eps, and gate_lower_bound (None selects the softplus gate).
    The output gate has full rank where weights holds g_proj, and low rank where it holds g_a_proj and g_b_proj.
    """
    heads, head_dim = options["num_heads"], options["head_dim"]

    def split(y):
        return y.reshape(x.shape[0], heads, -1)

    def convolved(name):
        projected = linear(x, weights[f"{name}_proj.weight"])
        return split(short_conv(projected, weights[f"{name}_conv1d.weight"], cu_seqlens))

    q, k, v = l2_norm(convolved("q"), L2_NORM_EPS), l2_norm(convolved("k"), L2_NORM_EPS), convolved("v")
    z = split(linear(linear(x, weights["f_a_proj.weight"]), weights["f_b_proj.weight"]))
    a_log = weights["A_log"].reshape(-1)
    if options["gate_lower_bound"] is None:
        g = softplus_decay(z, a_log, weights["dt_bias"])
    else:
        g = bounded_decay(z, a_log, weights["dt_bias"], options["gate_lower_bound"])
    beta = jax.nn.sigmoid(linear(x, weights["b_proj.weight"]))
    initial_state = jnp.zeros((len(cu_seqlens) - 1, heads, head_dim, v.shape[-1]))
    o, _ = recurrence(q, k, v, g, beta, initial_state, cu_seqlens)
    if "g_proj.weight" in weights:
        gate = linear(x, weights["g_proj.weight"])
    else:
        gate = linear(linear(x, weights["g_a_proj.weight"]), weights["g_b_proj.weight"])
    y = gated_rms_norm(o, split(gate), weights["o_norm.weight"], options["rms_norm_eps"])
    return linear(y.reshape(x.shape[0], -1), weights["o_proj.weight"])
