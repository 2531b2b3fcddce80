"""Golden cases of Quantile Balancing: one update from scores and a frozen bias, by both estimators.

In the random cases the scores are drawn so that no margin lies within EDGE of a bin's edge and no route within
ROUTE_MARGIN of a tie, so that float32 must find the same counts. The hand case has a published answer, checked here.
"""
import math

import numpy as np

from case import flat, rows_where, single, stored, tensor_case
from formulas import quantile_balance as qb

EDGE = 2e-3           # in units of bins; float32 resolves about 1e-4
ROUTE_MARGIN = 1e-4


def update(scores, bias, top_k, bins):
    """All that one update computes, by both estimators."""
    tokens, experts = scores.shape
    q = qb.quota(tokens, experts, top_k)
    routes, cutoffs = qb.cutoffs(scores, bias, top_k)
    margins, interval = cutoffs[:, None] - scores, qb.bounds(bias)
    exact, counts = qb.exact_bias(margins, q), qb.histogram(margins, interval, bins)
    estimated = qb.histogram_bias(counts, interval, q)
    outputs = {"routes": routes, "cutoffs": cutoffs, "loads": np.bincount(routes.reshape(-1), minlength=experts),
               "quota": np.array([float(q)]), "exact_raw": exact, "exact_bias": qb.centred(exact),
               "exact_next_bounds": qb.bounds(qb.centred(exact)), "bounds": interval, "histogram": counts,
               "histogram_raw": estimated, "histogram_bias": qb.centred(estimated),
               "histogram_next_bounds": qb.bounds(qb.centred(estimated))}
    # The estimate lies in the bin of the ceil(q)-th margin; the exact value may lie further where margins are sparse.
    ranked = np.sort(margins, axis=0)[math.ceil(q) - 1]
    if np.max(np.abs(ranked - estimated)) > (interval[1] - interval[0]) / bins:
        raise ValueError("the histogram's estimate is more than one bin away from the quantile")
    return flat({"in.": {"scores": scores, "bias": bias}, "out.": outputs})


def random_update(rng, options, tokens, experts, bias_size):
    top_k, bins = options["num_experts_per_token"], options["bins"]
    bias = single(qb.centred(rng.normal(0.0, bias_size, experts)))
    preference = rng.normal(0.0, 1.0, experts)   # skewed, so that the update has work to do

    def draw(rng):
        return single(1.0 / (1.0 + np.exp(-(preference + rng.normal(0.0, 1.0, experts)))))

    def accept(row):
        ranked = np.sort(row + bias)[::-1]
        margins = ranked[top_k] - row
        position = qb.bin_positions(margins, qb.bounds(bias), bins)
        # The first unchosen expert's margin is its own bias. Where that is zero, it is zero in every precision.
        clear = (np.abs(position - np.round(position)) > EDGE) | (margins == 0.0)
        return np.all(clear) and ranked[top_k - 1] - ranked[top_k] > ROUTE_MARGIN

    return update(rows_where(rng, draw, accept, tokens), bias, top_k, bins)


# Four tokens over four experts, top-1, worked by hand; all numbers are exact in binary.
HAND_SCORES = [[0.875, 0.75, 0.125, 0.25], [0.75, 0.625, 0.25, 0.125],
               [0.625, 0.875, 0.25, 0.375], [0.5, 0.375, 0.25, 0.125]]
HAND_ANSWER = {"out.routes": [[0], [0], [1], [0]], "out.loads": [3, 1, 0, 0], "out.cutoffs": [0.75, 0.625, 0.625, 0.375],
               "out.exact_raw": [-0.125, -0.125, 0.25, 0.25], "out.exact_bias": [-0.1875, -0.1875, 0.1875, 0.1875],
               "out.exact_next_bounds": [-1.1875, 1.1875], "out.bounds": [-1.0, 1.0]}
HAND_COUNTS = [{7: 3, 8: 1}, {6: 1, 8: 3}, {9: 1, 11: 2, 13: 1}, {10: 2, 12: 2}]
HAND_NEXT_ROUTES = [[0], [0], [1], [2]]


def hand_update(rng, options):
    scores = np.array(HAND_SCORES)
    tensors = update(scores, np.zeros(4), options["num_experts_per_token"], options["bins"])
    for name, wanted in HAND_ANSWER.items():
        if not np.array_equal(tensors[name], wanted):
            raise ValueError(f"{name} of the hand case: got {tensors[name]}, wanted {wanted}")
    counts = [{int(b): int(row[b]) for b in np.flatnonzero(row)} for row in tensors["out.histogram"]]
    if counts != HAND_COUNTS:
        raise ValueError(f"histogram of the hand case: got {counts}, wanted {HAND_COUNTS}")
    # The new bias, applied to the same scores: the fourth token moves to the third expert.
    tensors["out.next_routes"] = stored(qb.cutoffs(scores, tensors["out.exact_bias"], options["num_experts_per_token"])[0])
    if not np.array_equal(tensors["out.next_routes"], HAND_NEXT_ROUTES):
        raise ValueError(f"routes after the update of the hand case: got {tensors['out.next_routes']}")
    return tensors


def tied_update(rng, options):
    """Scores in steps of 1/8: many ties between experts and between tokens; the lower expert wins."""
    return update(np.round(rng.uniform(1.0, 7.0, (16, 6))) / 8.0, np.zeros(6), options["num_experts_per_token"], options["bins"])


def random_update_of(**shape):
    return lambda rng, options: random_update(rng, options, **shape)


CASES = [
    tensor_case("quantile_balance", "by_hand", 7001, "four tokens, four experts, worked by hand; 16 bins with exact edges",
                hand_update, num_experts_per_token=1, bins=16),
    tensor_case("quantile_balance", "first_step", 7002, "bias zero, whole quota of 40",
                random_update_of(tokens=96, experts=12, bias_size=0.0), num_experts_per_token=5, bins=1000),
    tensor_case("quantile_balance", "later_step", 7003, "bias of an earlier step, fractional quota of 18.75",
                random_update_of(tokens=50, experts=8, bias_size=0.2), num_experts_per_token=3, bins=1000),
    tensor_case("quantile_balance", "few_bins", 7004, "64 bins over a wide bias",
                random_update_of(tokens=60, experts=6, bias_size=0.5), num_experts_per_token=2, bins=64),
    tensor_case("quantile_balance", "ties", 7005, "equal scores, and margins on the edges of bins", tied_update,
                num_experts_per_token=2, bins=16),
]
