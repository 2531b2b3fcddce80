"""Golden cases of AdamW over several steps with a changing learning rate."""
import numpy as np

from case import flat, normal, single, tensor_case
from formulas.adamw import adamw_step


def steps(rng, options):
    count, size = 5, 17
    start, grads = normal(rng, size), normal(rng, count, size, std=0.3)
    grads[:, 0] = 0.0         # only decay moves this element
    grads[:, 1] *= 2.0**-30   # here eps decides
    rates = single([1e-2, 8e-3, 5e-3, 2e-3, 1e-3])
    param, exp_avg, exp_avg_sq, history = start, np.zeros(size), np.zeros(size), []
    for index in range(count):
        param, exp_avg, exp_avg_sq = adamw_step(param, grads[index], exp_avg, exp_avg_sq, index + 1, rates[index], options)
        history.append((param, exp_avg, exp_avg_sq))
    outputs = dict(zip(("param", "exp_avg", "exp_avg_sq"), map(np.stack, zip(*history))))
    return flat({"in.": {"param": start, "grad": grads, "learning_rate": rates}, "out.": outputs})


CASES = [
    tensor_case("adamw", "decay", 6001, "five steps with weight decay; row t of the outputs is the state after step t + 1", steps,
                beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1),
    tensor_case("adamw", "no_decay", 6002, "five steps without weight decay", steps,
                beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.0),
]
