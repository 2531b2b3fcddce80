"""Golden cases of the mix at an Attention-Residual site."""
import numpy as np

from case import differentiated, norm_weight, normal, tensor_case
from formulas import attn_res


def mix(rng, options, count, query_size):
    tokens, hidden = 7, 12
    # Sources of different sizes: the mix must weigh normed sources but sum the raw ones.
    sources = normal(rng, count, tokens, hidden) * np.exp2(np.arange(count) % 3)[:, None, None]
    weights = {"res_norm.weight": norm_weight(rng, hidden), "res_proj.weight": normal(rng, 1, hidden, std=query_size)}

    def run(inputs, weights):
        h, mixing = attn_res.mix(inputs["sources"], weights["res_norm.weight"], weights["res_proj.weight"], options["eps"])
        return {"h": h}, {"mixing_weights": mixing}

    return differentiated(rng, run, {"sources": sources}, weights)


def mix_case(name, seed, about, **shape):
    return tensor_case("attn_res_mix", name, seed, about, lambda rng, options: mix(rng, options, **shape), eps=1e-5)


CASES = [
    mix_case("four_sources", 5001, "random query", count=4, query_size=0.4),
    mix_case("nine_sources", 5002, "a peaked mix over as many sources as Kimi K3 has", count=9, query_size=2.0),
    mix_case("zero_query", 5003, "the initial state: equal weights, and no gradient for the norm", count=3, query_size=0.0),
    mix_case("one_source", 5004, "one source: the mix is the source, and the site has no gradient", count=1, query_size=0.4),
]
