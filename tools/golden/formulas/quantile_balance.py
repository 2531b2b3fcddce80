"""Quantile Balancing of the router's bias (Kimi K3 section 2.3.3 and appendix D), in NumPy: there is no gradient in it.

With a frozen bias b, a token's cutoff a is its (top_k + 1)-th biased score, and r = a - s is the bias at which an expert
would just be chosen. The new bias of an expert is the (top_k / experts)-quantile of its r over all tokens, and the whole
is then centred. Expert quota q = tokens * top_k / experts is kept as an exact fraction.
"""
from fractions import Fraction
import math

import numpy as np


def quota(tokens, experts, top_k):
    """Tokens that each expert should get, exactly."""
    return Fraction(tokens * top_k, experts)


def cutoffs(scores, bias, top_k):
    """Routes [tokens, top_k] in falling order of biased score (the lower expert first among equals), cutoffs [tokens]."""
    biased = scores + bias
    order = np.argsort(-biased, axis=-1, kind="stable")
    return order[:, :top_k], np.take_along_axis(biased, order, axis=-1)[:, top_k]


def centred(bias):
    return bias - bias.mean()


def exact_bias(margins, q):
    """Quantile of every column of margins [tokens, experts] at rank q, not yet centred.

    A whole q leaves the interval from the q-th to the (q+1)-th value open, and its midpoint is taken; a fractional q has
    one answer, the ceil(q)-th value (the "averaged inverted CDF" quantile).
    """
    ordered = np.sort(margins, axis=0)
    upper = math.ceil(q)
    if q.denominator > 1:
        return ordered[upper - 1]
    return 0.5 * (ordered[upper - 1] + ordered[upper])


def bounds(bias):
    """The interval that holds every margin of the next step, since scores lie in (0, 1): [min b - 1, max b + 1]."""
    return np.array([bias.min() - 1.0, bias.max() + 1.0])


def bin_positions(margins, interval, bins):
    """Margins in units of bins from the lower bound; the floor is the bin.

    Multiplying by bins / range puts the margin 0 of the first step (bias 0, range 2) on its edge exactly, in float32
    too; dividing by the width would not.
    """
    return (margins - interval[0]) * (bins / (interval[1] - interval[0]))


def histogram(margins, interval, bins):
    """Counts [experts, bins] of margins [tokens, experts]; a margin on an edge belongs to the bin above."""
    index = np.clip(np.floor(bin_positions(margins, interval, bins)).astype(np.int64), 0, bins - 1)
    return np.stack([np.bincount(column, minlength=bins) for column in index.T])


def histogram_bias(counts, interval, q):
    """Quantile of every row of counts [experts, bins], not yet centred: linear within the first bin that reaches ceil(q)."""
    width = (interval[1] - interval[0]) / counts.shape[1]
    result = np.empty(len(counts))
    for expert, row in enumerate(counts):
        reached = np.cumsum(row)
        chosen = int(np.argmax(reached >= math.ceil(q)))
        before = int(reached[chosen] - row[chosen])
        result[expert] = interval[0] + (chosen + np.clip(float(q - before) / row[chosen], 0.0, 1.0)) * width
    return result
