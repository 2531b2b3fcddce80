"""Router and mixture of experts, with and without the latent width (Kimi K3 eq. 11-13).

The choice of experts is constant under differentiation, as autodiff has it, and the balancing bias steers the choice
only: it gets no gradient. Every expert is applied to every token and the unchosen ones are multiplied by zero.
"""
import jax
import jax.numpy as jnp

from formulas.basic import gated_activation, linear, mlp, rms_norm

PROBABILITY_FLOOR = 1e-20


def select(scores, bias, top_k):
    """Routes by biased score, the lower expert first among equals.

    scores [tokens, experts], bias [experts]. Returns routes [tokens, top_k] in falling order of biased score and the
    biased scores of the first top_k + 1 [tokens, top_k + 1]; the last of these is the cutoff.
    """
    biased = jax.lax.stop_gradient(scores + bias)
    order = jnp.argsort(-biased, axis=-1, stable=True)[:, :top_k + 1]
    return order[:, :top_k], jnp.take_along_axis(biased, order, axis=-1)


def router(x, weights, options):
    """Sigmoid router: scores, routes, their mixing weights and the (top_k + 1) best biased scores.

    x [tokens, hidden]; options: num_experts_per_token, routed_scaling_factor.
    """
    scores = jax.nn.sigmoid(linear(x, weights["gate.weight"]))
    routes, ranked = select(scores, weights["gate.e_score_correction_bias"], options["num_experts_per_token"])
    chosen = jnp.take_along_axis(scores, routes, axis=-1)
    mixing = chosen / (jnp.sum(chosen, axis=-1, keepdims=True) + PROBABILITY_FLOOR) * options["routed_scaling_factor"]
    return scores, routes, mixing, ranked


def moe_layer(x, weights, options):
    """One MoE layer from its normed input x [tokens, hidden]. Returns the output, routes, mixing weights, ranked scores.

    The latent variant is chosen by the presence of routed_expert_down_proj: the router and the shared experts read the
    full width, the experts the latent one; the norm comes after the combine and before the up-projection. Without
    routed_expert_norm there is no norm, without shared_experts there are none.
    """
    _, routes, mixing, ranked = router(x, weights, options)
    experts = weights["gate.weight"].shape[0]
    latent = "routed_expert_down_proj.weight" in weights
    z = linear(x, weights["routed_expert_down_proj.weight"]) if latent else x
    w1, w2, w3 = (jnp.stack([weights[f"experts.{e}.w{i}.weight"] for e in range(experts)]) for i in (1, 2, 3))
    act = gated_activation(jnp.einsum("td,efd->tef", z, w1), jnp.einsum("td,efd->tef", z, w3), options)
    each = jnp.einsum("tef,edf->ted", act, w2)
    share = jnp.sum(jax.nn.one_hot(routes, experts, dtype=mixing.dtype) * mixing[:, :, None], axis=1)
    combined = jnp.einsum("te,ted->td", share, each)
    if "routed_expert_norm.weight" in weights:
        combined = rms_norm(combined, weights["routed_expert_norm.weight"], options["rms_norm_eps"])
    y = linear(combined, weights["routed_expert_up_proj.weight"]) if latent else combined
    if "shared_experts.gate_proj.weight" in weights:
        y = y + mlp(x, weights, options, prefix="shared_experts.")
    return y, routes, mixing, ranked
