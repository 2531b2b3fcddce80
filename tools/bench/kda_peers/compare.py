#!/usr/bin/env python3
"""Times and checks Kimi Delta Attention of published packages beside Longhaul's, in one process and on the same inputs.

A package that is missing, or refuses a shape, leaves its cells empty and its reason under the table. README.md has the details.
"""
import argparse
import json
import math
import statistics
import sys
import time
import traceback

import torch

from fla_tuning import Restriction
from implementations import CuDnn, Fla, Ours
from inputs import GATES, SHAPES, Inputs, reference, relative_errors

PASSES = ("forward", "both")
LONG_CALL = 0.05  # seconds
SLOW_SHAPES = ("8192 x 96", "65536 x 32", "1048576 x 8")


class Clock:
    """Medians of calls timed by CUDA events. Before each, L2 is overwritten and the GPU waits until the host has enqueued the call,
    so that times are of the GPU alone. The wait follows the host's time, which differs between packages."""

    def __init__(self, repeats):
        self.repeats, self.repeats_of_long = repeats, min(repeats, 7)
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def measure(self, call):
        host = []
        for _ in range(3):
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            host.append(time.perf_counter() - start)
        torch.cuda.synchronize()
        host_and_gpu = time.perf_counter() - start
        wait = int(3e9 * min(host[1:])) + 500_000  # cycles of a clock of 2 GHz at most
        times = []
        for _ in range(self.repeats if host_and_gpu < LONG_CALL else self.repeats_of_long):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self.flush.zero_()
            torch.cuda._sleep(wait)
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return {"ms": statistics.median(times), "least": min(times), "most": max(times), "host_ms": 1e3 * min(host[1:])}


def peak_bytes(x, implementation, form, what):
    """Peak memory of a first call: its inputs, outputs, gradients and scratch."""
    names = set(implementation.inputs(form)) | ({"d_o"} if what == "both" else set())
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call, result = getattr(implementation, what)(x, form)
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before + x.size_of(names)


class Record:
    def __init__(self, path):
        self.path = path
        self.data = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "times": [], "errors": [], "failures": []}

    def attempt(self, kind, key, compute):
        """Notes compute()'s dictionary under `kind`, or why there is none."""
        try:
            entry = key | compute()
            self.data[kind].append(entry)
        except Exception as error:  # noqa: BLE001: whatever a package throws is its result
            entry = key | {"error": f"{type(error).__name__}: {str(error)[:300]}"}
            self.data["failures"].append(entry)
            traceback.print_exc(limit=4, file=sys.stderr)
        print(" ".join(f"{v:.5g}" if isinstance(v, float) else str(v) for v in entry.values()), flush=True)
        with open(self.path, "w", encoding="utf-8") as out:
            json.dump(self.data, out, indent=1)


def time_shape(record, clock, implementation, x, key, forms):
    for form in forms:
        for what in implementation.forms[form]:
            def compute(form=form, what=what):
                call, _ = getattr(implementation, what)(x, form)
                times = clock.measure(call)
                del call
                if what == "both" and key["shape"] == "8192 x 96":
                    times["peak_gib"] = peak_bytes(x, implementation, form, what) / 2**30
                return times
            record.attempt("times", key | {"who": implementation.name, "form": form, "pass": what}, compute)
            torch.cuda.empty_cache()


def time_all(record, clock, packages, shapes, all_gates, restriction):
    for gates in all_gates if packages else ():
        for shape in shapes if gates == "strong" else [s for s in shapes if s in SLOW_SHAPES]:
            x = Inputs(*SHAPES[shape], gates)
            if restriction:
                restriction.apply(x.heads)
            for unbounded in (False, True) if gates == "strong" else (False,):
                x.prepare(unbounded)
                for package in packages:
                    time_shape(record, clock, package, x, {"gates": gates, "shape": shape},
                               [f for f in package.forms if ("unbounded" in f) == unbounded])
            del x
            torch.cuda.empty_cache()


def check(record, implementation, lengths, heads, gates):
    x = Inputs(lengths, heads, gates, seed=7)
    x.prepare()
    expected = {}
    for form in ("raw", "given"):
        for what in implementation.forms.get(form, ())[-1:]:
            def compute(form=form, what=what):
                if form not in expected:
                    expected[form] = reference(x, form == "raw")
                call, result = getattr(implementation, what)(x, form, final_state=True)
                call()
                torch.cuda.synchronize()
                return relative_errors(result(), expected[form])
            record.attempt("errors", {"tokens": x.tokens, "heads": heads, "gates": gates, "who": implementation.name, "form": form},
                           compute)


# What is compared: inputs of the packages, inputs of ours (unbounded gates are not fused), packages.
COMPARISONS = (("raw", "raw", ("cudnn", "fla")), ("given", "given", ("cudnn",)), ("raw unbounded", "given unbounded", ("fla",)))


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *("| " + " | ".join(row) + " |" for row in rows), ""]


def comparison(times, gates, what, form, own, packages):
    """Lines of one table, none where no package was timed."""
    rows, ratios = [], []
    for shape in SHAPES:
        ours = times.get((gates, shape, "ours", own, what))
        others = [times.get((gates, shape, package, form, what)) for package in packages]
        best = min((t for t in others if t), default=None)
        if best and ours:
            ratios.append(best / ours)
        if best:
            rows.append([shape, *(f"{t:.3f}" if t else "" for t in (ours, *others)), f"{best / ours:.2f}" if ours else ""])
    if not rows:
        return []
    lines = [f"### {'Forward' if what == 'forward' else 'Forward and backward'}, inputs {form}, {gates} gates, ms", ""]
    lines += table(["tokens x heads", f"ours, {own}", *(f"{p}, {form}" for p in packages), "best public / ours"], rows)
    return lines + ([f"Geometric mean: {math.exp(statistics.mean(map(math.log, ratios))):.3f}", ""] if ratios else [])


def markdown(data):
    times = {(t["gates"], t["shape"], t["who"], t["form"], t["pass"]): t["ms"] for t in data["times"]}
    lines = []
    for gates in GATES:
        for what in PASSES:
            for form, own, packages in COMPARISONS:
                lines += comparison(times, gates, what, form, own, packages)
    lines += ["### Peak memory with inputs, outputs and gradients, forward and backward, GiB", ""]
    lines += table(["tokens x heads", "package", "peak"], [[t["shape"], f"{t['who']}, {t['form']}", f"{t['peak_gib']:.2f}"]
                                                          for t in data["times"] if "peak_gib" in t and t["gates"] == GATES[0]])
    names = ("o", "state", "dq", "dk", "dv", "dg", "dbeta")
    lines += ["### Relative RMS errors against double on the same inputs", ""]
    lines += table(["tokens x heads", "gates", "package", *names],
                   [[f"{e['tokens']} x {e['heads']}", e["gates"], f"{e['who']}, {e['form']}",
                     *(f"{e[n]:.4f}" if n in e else "" for n in names)]
                    for e in data["errors"]])
    return "\n".join(lines + [f"- failed: {f}" for f in data["failures"]]) + "\n"


def load(make):
    try:
        return make()
    except Exception:  # noqa: BLE001
        traceback.print_exc(limit=2, file=sys.stderr)
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="the shared library of entry.cu")
    parser.add_argument("--save-images", action="store_true", help="our forward leaves backward more than states: faster, larger")
    parser.add_argument("--out", default="kda_peers", help="writes OUT.json and OUT.md")
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--fla-shapes", nargs="+", help="of --shapes, those for FLA; all by default")
    parser.add_argument("--gates", nargs="+", default=list(GATES))
    parser.add_argument("--packages", nargs="+", default=["ours", "cudnn", "fla"])
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--fla-tuning", help="folder with *.autotune.json of an earlier run, see fla_tuning.py")
    args = parser.parse_args()
    torch.cuda.init()
    makers = {"ours": lambda: Ours(args.library, args.save_images), "cudnn": CuDnn, "fla": Fla}
    packages = [p for p in (load(makers[name]) for name in args.packages) if p]
    restriction = Restriction(args.fla_tuning) if args.fla_tuning and "fla" in args.packages else None
    clock, record = Clock(args.repeats), Record(args.out + ".json")
    for package in packages:
        for gates in args.gates if package.name != "fla" else args.gates[:1]:
            lengths, heads = ([300], 96) if package.name == "fla" else ([1000, 77], 4)  # at heads that FLA is tuned for anyway
            if restriction:
                restriction.apply(heads)
            check(record, package, lengths, heads, gates)
    # FLA last, as it may have to be tuned; its times do not depend on gates.
    time_all(record, clock, [p for p in packages if p.name != "fla"], args.shapes, args.gates, None)
    time_all(record, clock, [p for p in packages if p.name == "fla"], args.fla_shapes or args.shapes, args.gates[:1], restriction)
    with open(args.out + ".md", "w", encoding="utf-8") as out:
        out.write(markdown(record.data))
    print(markdown(record.data))


if __name__ == "__main__":
    main()
