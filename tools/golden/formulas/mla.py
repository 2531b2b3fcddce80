"""Multi-head latent attention without position encoding, with or without output gate (Kimi K3 section 2.1.2, eq. 7).

There is no rotation anywhere: the "rope" part of a key is merely the part that all heads share, and it is not normed.
"""
import jax
import jax.numpy as jnp
import numpy as np

from formulas.basic import document_starts, linear, rms_norm

LATENT_NORM_EPS = 1e-6


def attention(q, k, v, cu_seqlens):
    """Causal softmax attention within each document, scaled by the key width^-1/2.

    q, k [tokens, heads, qk_dim]; v [tokens, heads, v_dim]. Returns o [tokens, heads, v_dim] and the natural
    log-sum-exp of the scaled scores [tokens, heads].
    """
    position = np.arange(q.shape[0])
    begin = document_starts(cu_seqlens)
    visible = (position[None, :] <= position[:, None]) & (position[None, :] >= begin[:, None])
    scores = jnp.einsum("thd,shd->hts", q, k) * q.shape[-1] ** -0.5
    scores = jnp.where(visible, scores, -jnp.inf)
    lse = jax.nn.logsumexp(scores, axis=-1)
    o = jnp.einsum("hts,shd->thd", jnp.exp(scores - lse[:, :, None]), v)
    return o, lse.T


def mla_layer(x, weights, options, cu_seqlens):
    """One MLA layer from its normed input x [tokens, hidden] to its output [tokens, hidden].

    options: num_attention_heads, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, kv_lora_rank. The query goes through
    q_a_proj, q_a_layernorm, q_b_proj where weights holds them and through q_proj otherwise; g_proj switches the gate on.
    """
    tokens, heads = x.shape[0], options["num_attention_heads"]
    nope, rope, rank = options["qk_nope_head_dim"], options["qk_rope_head_dim"], options["kv_lora_rank"]
    if "q_proj.weight" in weights:
        q = linear(x, weights["q_proj.weight"])
    else:
        latent_q = rms_norm(linear(x, weights["q_a_proj.weight"]), weights["q_a_layernorm.weight"], LATENT_NORM_EPS)
        q = linear(latent_q, weights["q_b_proj.weight"])
    q = q.reshape(tokens, heads, nope + rope)
    compressed = linear(x, weights["kv_a_proj_with_mqa.weight"])
    latent_kv = rms_norm(compressed[:, :rank], weights["kv_a_layernorm.weight"], LATENT_NORM_EPS)
    expanded = linear(latent_kv, weights["kv_b_proj.weight"]).reshape(tokens, heads, nope + options["v_head_dim"])
    shared_key = jnp.broadcast_to(compressed[:, None, rank:], (tokens, heads, rope))
    k = jnp.concatenate([expanded[:, :, :nope], shared_key], axis=-1)
    o, _ = attention(q, k, expanded[:, :, nope:], cu_seqlens)
    o = o.reshape(tokens, -1)
    if "g_proj.weight" in weights:
        o = o * jax.nn.sigmoid(linear(x, weights["g_proj.weight"]))
    return linear(o, weights["o_proj.weight"])
