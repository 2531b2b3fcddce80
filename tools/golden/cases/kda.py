"""Golden cases of Kimi Delta Attention: decay gates, the recurrence alone, and whole layers."""
import numpy as np

from case import differentiated, matrix, norm_weight, normal, packed, single, tensor_case, uniform
from formulas import kda

LOWER_BOUND = -5.0


def decay_gate(rng, options):
    tokens, heads, head_dim = 8, 3, 6
    z = normal(rng, tokens, heads, head_dim, std=2.0)
    z[0, 0] = [-60.0, 60.0, -15.0, 15.0, 0.0, 5.0]   # closed, open and saturated
    weights = {"A_log": normal(rng, heads, std=0.5), "dt_bias": uniform(rng, -4.0, 1.0, heads * head_dim)}

    def run(inputs, weights):
        a_log, dt_bias = weights["A_log"], weights["dt_bias"]
        if options["gate_lower_bound"] is None:
            return {"g": kda.softplus_decay(inputs["z"], a_log, dt_bias)}, {}
        return {"g": kda.bounded_decay(inputs["z"], a_log, dt_bias, options["gate_lower_bound"])}, {}

    return differentiated(rng, run, {"z": z}, weights)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def random_decay(rng, *shape):
    """Log-decays as the bounded gate makes them, from nearly closed to nearly open."""
    return single(LOWER_BOUND * sigmoid(rng.uniform(-6.0, 4.0, shape)))


def saturated_decay(rng, *shape):
    """Half of all values exactly at the bound, and tokens 8 to 23 entirely: over that tile the decay is e^-80."""
    g = random_decay(rng, *shape)
    g[rng.random(shape) < 0.5] = LOWER_BOUND
    g[8:24] = LOWER_BOUND
    return g


def unbounded_decay(rng, *shape):
    """Log-decays of the softplus gate, some so strong that the cumulative decay leaves the range of any float."""
    g = -np.logaddexp(0.0, rng.normal(-1.0, 2.0, shape))
    g[rng.random(shape) < 0.05] = -60.0
    return single(g)


def unit(rng, *shape):
    x = rng.standard_normal(shape)
    return single(x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + kda.L2_NORM_EPS))


def parallel_keys(rng, *shape):
    """Unit keys that differ from one another by a percent."""
    x = rng.standard_normal(shape[-1]) + 0.01 * rng.standard_normal(shape)
    return single(x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + kda.L2_NORM_EPS))


def recurrence(rng, lengths, heads, key_dim, value_dim, decay=random_decay, keys=unit, beta=(0.02, 0.98), first_state=1.0):
    cu_seqlens = packed(*lengths)
    tokens = int(cu_seqlens[-1])
    inputs = {
        "q": unit(rng, tokens, heads, key_dim),
        "k": keys(rng, tokens, heads, key_dim),
        "v": normal(rng, tokens, heads, value_dim),
        "g": decay(rng, tokens, heads, key_dim),
        "beta": uniform(rng, *beta, tokens, heads),
        "initial_state": normal(rng, len(lengths), heads, key_dim, value_dim, std=first_state),
    }

    def run(inputs, weights):
        o, final_state = kda.recurrence(**inputs, cu_seqlens=cu_seqlens)
        return {"o": o, "final_state": final_state}, {}

    return differentiated(rng, run, inputs, constants={"cu_seqlens": cu_seqlens})


def recurrence_case(name, seed, about, **shape):
    return tensor_case("kda", name, seed, about, lambda rng, options: recurrence(rng, **shape))


def layer_weights(rng, hidden, heads, head_dim, full_rank_gate, conv_width=4):
    """Random weights of a KDA layer with the released names; also used for whole layers."""
    width = heads * head_dim
    weights = {f"{name}_proj.weight": matrix(rng, width, hidden) for name in "qkv"}
    weights |= {f"{name}_conv1d.weight": normal(rng, width, 1, conv_width, std=0.5) for name in "qkv"}
    weights |= {"f_a_proj.weight": matrix(rng, head_dim, hidden), "f_b_proj.weight": matrix(rng, width, head_dim),
                "b_proj.weight": matrix(rng, heads, hidden), "A_log": normal(rng, heads, std=0.5),
                "dt_bias": uniform(rng, -3.0, 1.0, width), "o_norm.weight": norm_weight(rng, head_dim),
                "o_proj.weight": matrix(rng, hidden, width)}
    if full_rank_gate:
        return weights | {"g_proj.weight": matrix(rng, width, hidden)}
    return weights | {"g_a_proj.weight": matrix(rng, head_dim, hidden), "g_b_proj.weight": matrix(rng, width, head_dim)}


def layer(rng, options, hidden, lengths):
    cu_seqlens = packed(*lengths)
    weights = layer_weights(rng, hidden, options["num_heads"], options["head_dim"], options["use_full_rank_gate"])

    def run(inputs, weights):
        return {"y": kda.kda_layer(inputs["x"], weights, options, cu_seqlens)}, {}

    return differentiated(rng, run, {"x": normal(rng, int(cu_seqlens[-1]), hidden)}, weights, {"cu_seqlens": cu_seqlens})


def layer_case(name, seed, about, hidden, lengths, **options):
    options = {"rms_norm_eps": 1e-5, "l2_norm_eps": kda.L2_NORM_EPS, "short_conv_kernel_size": 4, **options}
    return tensor_case("kda_layer", name, seed, about, lambda rng, options: layer(rng, options, hidden, lengths), **options)


CASES = [
    tensor_case("decay_gate", "bounded", 2001, "the gate of Kimi K3", decay_gate, gate_lower_bound=LOWER_BOUND),
    tensor_case("decay_gate", "softplus", 2002, "the gate of Kimi Linear", decay_gate, gate_lower_bound=None),
    recurrence_case("packed", 2003, "documents around the tile size of 16; value wider than key",
                    lengths=(1, 15, 16, 17, 33), heads=2, key_dim=6, value_dim=10),
    recurrence_case("long", 2004, "one document over two chunks of 64 and a rest; key wider than value",
                    lengths=(133,), heads=1, key_dim=6, value_dim=4),
    recurrence_case("saturated", 2005, "decay at its bound for a whole tile; no incoming state",
                    lengths=(21, 25), heads=1, key_dim=8, value_dim=6, decay=saturated_decay, first_state=0.0),
    recurrence_case("unbounded", 2006, "decay of the softplus gate, up to -60 a step",
                    lengths=(20, 5), heads=2, key_dim=4, value_dim=6, decay=unbounded_decay),
    recurrence_case("parallel_keys", 2007, "nearly parallel keys and beta near one: the hard case of the chunk's inverse",
                    lengths=(40,), heads=1, key_dim=8, value_dim=6, keys=parallel_keys, beta=(0.99, 1.0),
                    decay=lambda rng, *shape: single(rng.uniform(-0.02, -0.005, shape))),
    recurrence_case("empty_document", 2008, "an empty document hands its initial state on",
                    lengths=(3, 0, 2), heads=2, key_dim=4, value_dim=6),
    layer_case("k3", 2009, "bounded gate, output gate of full rank", hidden=20, lengths=(11, 1, 18),
               num_heads=2, head_dim=8, gate_lower_bound=LOWER_BOUND, use_full_rank_gate=True),
    layer_case("kimi_linear", 2010, "softplus gate, output gate of low rank", hidden=14, lengths=(19, 6),
               num_heads=3, head_dim=6, gate_lower_bound=None, use_full_rank_gate=False),
]
