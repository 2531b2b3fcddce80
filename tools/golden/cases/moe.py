"""Golden cases of the router and of mixture-of-experts layers.

The tokens are drawn so that no route is decided by less than ROUTE_MARGIN: float32 noise then cannot change a route, and
a difference of a route is an error.
"""
import numpy as np

from case import differentiated, matrix, norm_weight, normal, require_margin, rows_where, tensor_case
from cases.basic import SITU
from formulas import moe

ROUTE_MARGIN = 1e-3


def clear_rows(rng, tokens, gate, bias, top_k):
    """Tokens [tokens, hidden] whose routes are clear by ROUTE_MARGIN."""
    def accept(row):
        ranked = np.sort(1.0 / (1.0 + np.exp(-gate @ row)) + bias)[::-1]
        return ranked[top_k - 1] - ranked[top_k] > ROUTE_MARGIN
    return rows_where(rng, lambda rng: normal(rng, gate.shape[1]), accept, tokens)


def router(rng, options, experts, bias_size):
    tokens, hidden, top_k = 16, 10, options["num_experts_per_token"]
    gate, bias = matrix(rng, experts, hidden), normal(rng, experts, std=bias_size)
    x = clear_rows(rng, tokens, gate, bias, top_k)

    def run(inputs, weights):
        scores, routes, mixing, ranked = moe.router(
            inputs["x"], {**weights, "gate.e_score_correction_bias": bias}, options)
        return {"mixing_weights": mixing}, {"scores": scores, "routes": routes, "ranked": ranked, "cutoffs": ranked[:, -1]}

    tensors = differentiated(rng, run, {"x": x}, {"gate.weight": gate}, frozen={"gate.e_score_correction_bias": bias})
    require_margin(tensors.pop("out.ranked"), ROUTE_MARGIN)
    return tensors


def layer_weights(rng, hidden, latent, experts, width, shared_width, latent_norm=True):
    """Random weights of an MoE layer with the released names, without the balancing bias; latent None: no latent width."""
    inner = hidden if latent is None else latent
    weights = {"gate.weight": matrix(rng, experts, hidden)}
    for expert in range(experts):
        weights[f"experts.{expert}.w1.weight"] = matrix(rng, width, inner, gain=1.5)
        weights[f"experts.{expert}.w3.weight"] = matrix(rng, width, inner, gain=1.5)
        weights[f"experts.{expert}.w2.weight"] = matrix(rng, inner, width)
    shared = {"gate": (shared_width, hidden), "up": (shared_width, hidden), "down": (hidden, shared_width)}
    for name, shape in shared.items() if shared_width else ():
        weights[f"shared_experts.{name}_proj.weight"] = matrix(rng, *shape)
    if latent is not None:
        weights |= {"routed_expert_down_proj.weight": matrix(rng, latent, hidden),
                    "routed_expert_norm.weight": norm_weight(rng, latent),
                    "routed_expert_up_proj.weight": matrix(rng, hidden, latent)}
        if not latent_norm:
            del weights["routed_expert_norm.weight"]
    return weights


def layer(rng, options, hidden, latent):
    tokens, experts = 14, options["num_experts"]
    shared_width = options["num_shared_experts"] * options["moe_intermediate_size"]
    weights = layer_weights(rng, hidden, latent, experts, options["moe_intermediate_size"], shared_width)
    bias = normal(rng, experts, std=0.2)
    bias[2] = -2.0   # nobody reaches this expert: its gradients are zero
    x = clear_rows(rng, tokens, weights["gate.weight"], bias, options["num_experts_per_token"])

    def run(inputs, weights):
        y, routes, mixing, ranked = moe.moe_layer(inputs["x"], {**weights, "gate.e_score_correction_bias": bias}, options)
        return {"y": y}, {"routes": routes, "mixing_weights": mixing, "ranked": ranked, "cutoffs": ranked[:, -1]}

    tensors = differentiated(rng, run, {"x": x}, weights, frozen={"gate.e_score_correction_bias": bias})
    require_margin(tensors.pop("out.ranked"), ROUTE_MARGIN)
    return tensors


def router_of(**shape):
    return lambda rng, options: router(rng, options, **shape)


def layer_of(**shape):
    return lambda rng, options: layer(rng, options, **shape)


CASES = [
    tensor_case("router", "k3", 4001, "top-3 of 8 with a balancing bias that changes routes", router_of(experts=8, bias_size=0.2),
                num_experts_per_token=3, routed_scaling_factor=1.0),
    tensor_case("router", "scaled", 4002, "scaling factor of Kimi Linear", router_of(experts=6, bias_size=0.1),
                num_experts_per_token=2, routed_scaling_factor=2.446),
    tensor_case("moe_layer", "latent", 4004, "latent width, norm after the combine, SiTU-GLU, two shared experts",
                layer_of(hidden=14, latent=10), num_experts=6, num_experts_per_token=2, num_shared_experts=2,
                moe_intermediate_size=4, routed_scaling_factor=1.0, rms_norm_eps=1e-5, **SITU),
    tensor_case("moe_layer", "plain", 4005, "no latent width, SwiGLU, scaling factor", layer_of(hidden=12, latent=None),
                num_experts=5, num_experts_per_token=3, num_shared_experts=1, moe_intermediate_size=7,
                routed_scaling_factor=2.446, rms_norm_eps=1e-5, hidden_act="silu"),
]
