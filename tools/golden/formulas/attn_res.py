"""The mix of an Attention-Residual site (Attention Residuals eq. 1-6; Kimi K3 eq. 8-10).

A site weighs its sources by a softmax over the sources of one logit each. The logits see normed sources, the sum takes
them as they are. Which sources a site has is model.py's business.
"""
import jax
import jax.numpy as jnp

from formulas.basic import rms_norm


def mix(sources, norm_weight, proj_weight, eps):
    """sources [sources, tokens, hidden], norm_weight [hidden], proj_weight [1, hidden].

    Returns the mix [tokens, hidden] and the mixing weights [sources, tokens].
    """
    logits = jnp.sum(rms_norm(sources, norm_weight, eps) * proj_weight.reshape(-1), axis=-1)
    weights = jax.nn.softmax(logits, axis=0)
    return jnp.sum(weights[:, :, None] * sources, axis=0), weights
