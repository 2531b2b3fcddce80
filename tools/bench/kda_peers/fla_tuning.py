"""Shortens the run-time tuning of flash-linear-attention, which takes minutes at each new number of heads.

Triton leaves a file NAME.autotune.json in its cache (TRITON_CACHE_DIR) for each kernel that it tuned. Given a folder with such files
of an earlier run, `restrict` leaves each kernel the configurations that won there, for whichever number of heads. The two kernels
that walk along a sequence have a grid of heads x value slices, so with few heads they keep all configurations and are tuned again.
As a program, this fills Triton's cache with what a comparison needs, one process of several:
    fla_tuning.py FOLDER PROCESS PROCESSES HEADS...
"""
import gc
import json
import pathlib
import sys

WALKS = ("chunk_gated_delta_rule_fwd_kernel_h_blockdim64", "chunk_gated_delta_rule_bwd_kernel_dhu_blockdim64")
FEW_HEADS = 16


def winners(folder):
    """{kernel: [(arguments, warps, stages), ...]} of the tuning files in `folder`."""
    found = {}
    for path in pathlib.Path(folder).rglob("*.autotune.json"):
        timings = json.loads(path.read_text())["configs_timings"]
        best = min(timings, key=lambda entry: entry[1][0] if isinstance(entry[1], list) else entry[1])[0]
        choice = (best["kwargs"], best["num_warps"], best["num_stages"])
        names = found.setdefault(path.name.removesuffix(".autotune.json"), [])
        if choice not in names:
            names.append(choice)
    return found


class Restriction:
    def __init__(self, folder):
        from triton.runtime.autotuner import Autotuner
        self.winners = winners(folder)
        self.tuners = [t for t in gc.get_objects() if issubclass(type(t), Autotuner) and t.base_fn.__name__ in self.winners]
        self.all_configs = [t.configs for t in self.tuners]

    def apply(self, heads):
        for tuner, configs in zip(self.tuners, self.all_configs):
            name = tuner.base_fn.__name__
            kept = [c for c in configs if (c.kwargs, c.num_warps, c.num_stages) in self.winners[name]]
            tuner.configs = configs if not kept or (name in WALKS and heads <= FEW_HEADS) else kept


def compile_only(part, parts):
    """Lets tuning compile and run each configuration once instead of timing it, and only every `parts`-th of them."""
    from triton.runtime.autotuner import Autotuner
    bench = Autotuner._bench

    def once(call, quantiles=None, **_):
        call()
        return [1.0, 1.0, 1.0]

    def some(self, *args, config, **meta):
        return bench(self, *args, config=config, **meta) if self.configs.index(config) % parts == part else [float("inf")] * 3
    Autotuner.do_bench = property(lambda self: once, lambda self, value: None)
    Autotuner._bench = some


def main(folder, process, processes, all_heads):
    from implementations import Fla
    from inputs import Inputs
    jobs = [(heads, lengths, form, part) for heads, lengths, parts in ((8, [256], 2), (16, [256], 2), (96, [256], 1), (96, [192, 64], 1),
                                                                      (64, [256], 1), (32, [256], 1))
            if heads in all_heads for form in Fla.forms for part in range(parts)]
    fla = Fla()
    restriction = Restriction(folder)
    for heads, lengths, form, part in jobs[process::processes]:
        compile_only(part, 2 if heads <= FEW_HEADS else 1)
        restriction.apply(heads)
        fla.both(Inputs(lengths, heads), form)[0]()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [int(heads) for heads in sys.argv[4:]])
