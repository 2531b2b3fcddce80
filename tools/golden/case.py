"""What a golden case is, and the helpers that the modules in cases/ build theirs with.

A case is deterministic: its only source of randomness is NumPy's PCG64 with the seed that it states. Random numbers are
rounded to float32, so that a float32 or float64 implementation starts from the same inputs bit for bit.
"""
from dataclasses import dataclass, field
from typing import Callable

import jax
import numpy as np


@dataclass
class Case:
    """One case: build(rng) returns {file relative to tests/golden/<op>: tensors, or a dictionary to write as JSON}."""
    op: str
    name: str
    seed: int
    about: str
    build: Callable
    options: dict = field(default_factory=dict)   # scalars that a reader needs; they go into the metadata as strings

    def files(self):
        return self.build(np.random.Generator(np.random.PCG64(self.seed)))


def tensor_case(op, name, seed, about, build, **options):
    """A case of one file; build(rng, options) returns its tensors."""
    return Case(op, name, seed, about, lambda rng: {f"{name}.safetensors": build(rng, options)}, options)


def as_text(value):
    """An option as metadata: shortest exact decimal for floats, "true" or "false", "none" for None."""
    return str(value).lower()


def single(array):
    """Rounds to float32 and returns float64."""
    return np.asarray(array, np.float32).astype(np.float64)


def normal(rng, *shape, std=1.0, mean=0.0):
    return single(mean + std * rng.standard_normal(shape))


def uniform(rng, low, high, *shape):
    return single(rng.uniform(low, high, shape))


def matrix(rng, out_features, in_features, gain=1.0):
    """A random linear weight [out, in] that keeps the size of its input."""
    return normal(rng, out_features, in_features, std=gain * in_features ** -0.5)


def norm_weight(rng, *shape):
    """A norm's weight near one; nowhere equal, so that a forgotten weight shows."""
    return normal(rng, *shape, std=0.2, mean=1.0)


def packed(*lengths):
    """cu_seqlens [documents + 1] of documents of these lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def differentiated(rng, function, inputs, weights=None, constants=None, frozen=None):
    """Runs function and its vector-Jacobian product with random upstream gradients, and names all tensors.

    function(inputs, weights) returns (outputs, extra): outputs get an upstream gradient, extra (may be {}) does not.
    inputs and weights are {name: float64 array}, all differentiated; constants are stored as inputs and frozen as weights,
    neither differentiated (integers, the balancing bias): function closes over them. An integer result becomes int32.
    """
    weights = weights or {}
    shapes, _ = jax.eval_shape(function, inputs, weights)
    upstream = {name: normal(rng, *shape.shape) for name, shape in shapes.items()}

    @jax.jit
    def both_ways(inputs, weights, upstream):
        outputs, pull_back, extra = jax.vjp(function, inputs, weights, has_aux=True)
        return outputs, extra, pull_back(upstream)

    outputs, extra, (grad_inputs, grad_weights) = both_ways(inputs, weights, upstream)
    groups = {"in.": inputs | (constants or {}), "weight.": weights | (frozen or {}), "dy.": upstream,
              "out.": outputs | extra, "grad.in.": grad_inputs, "grad.weight.": grad_weights}
    return flat(groups)


def flat(groups):
    """{prefix: {name: array}} as one dictionary of the tensors to store."""
    return {prefix + name: stored(value) for prefix, group in groups.items() for name, value in group.items()}


def stored(value):
    """An array in the dtype that the files use: float64 or int32."""
    array = np.asarray(value)
    return array.astype(np.int32 if np.issubdtype(array.dtype, np.integer) else np.float64)


def require_margin(ranked, least):
    """Stops unless the last chosen expert leads the first unchosen one by `least` for every token, so that float32 noise
    cannot change a route. ranked [tokens, top_k + 1]: the best biased scores in falling order. Returns the margin."""
    margin = float(np.min(np.asarray(ranked)[:, -2] - np.asarray(ranked)[:, -1]))
    if margin < least:
        raise ValueError(f"a route is decided by {margin:.2e}, less than {least:.0e}; choose another seed")
    return margin


def rows_where(rng, draw, accept, rows):
    """`rows` rows from draw(rng), each drawn again until accept(row); keeps a random case clear of near ties."""
    result = []
    for _ in range(100 * rows):
        row = draw(rng)
        if accept(row):
            result.append(row)
        if len(result) == rows:
            return np.stack(result)
    raise ValueError("hardly any row is accepted; choose another seed")
