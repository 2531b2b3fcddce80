"""AdamW (arXiv:1711.05101, algorithm 2) with bias correction; decay and step are both scaled by the learning rate."""
import numpy as np


def adamw_step(param, grad, exp_avg, exp_avg_sq, step, learning_rate, options):
    """One update; step counts from 1. Returns the new param, exp_avg and exp_avg_sq, each of the shape of param.

    options: beta1, beta2, eps (outside the root), weight_decay.
    """
    exp_avg = options["beta1"] * exp_avg + (1.0 - options["beta1"]) * grad
    exp_avg_sq = options["beta2"] * exp_avg_sq + (1.0 - options["beta2"]) * grad * grad
    corrected = exp_avg / (1.0 - options["beta1"] ** step)
    corrected_sq = exp_avg_sq / (1.0 - options["beta2"] ** step)
    change = corrected / (np.sqrt(corrected_sq) + options["eps"]) + options["weight_decay"] * param
    return param - learning_rate * change, exp_avg, exp_avg_sq
