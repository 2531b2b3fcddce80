#!/usr/bin/env python3
"""Several GPUs of one host, shown by running `train`:

    multi_gpu.sh --bin build/bin --ranks 2 --tokens data/kjv_train --large-tokens data/h200_1b_train

  layouts     losses of 50 steps of a small model in bf16, beside those of one rank
  endurance   2000 steps with experts on different ranks and routing that nothing evens out; none may hang
  exchange    bandwidth of carrying tokens to their experts and back, beside a plain all-to-all of the same bytes
  scaling     tokens a second of recipes/h200_1b.yaml with 1 … N data ranks, the batch growing with them, and the share of the time
              in which a GPU does nothing but communicate
  failure     a rank is killed in the middle of a step: how soon the others end, and resuming on N and on fewer ranks

--ranks is the number of GPUs. With --communicator staged the ranks may share one GPU, with --backend cpu they need none: rehearsals.
Exit code: 0 when all parts that were asked for held.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OPENBLAS_NUM_THREADS": "1", "NCCL_NVLS_ENABLE": "0",
}
BF16_BOUND = 1e-2  # relative, of a loss: as far as a layout may be from one rank in bf16
KILL_LIMIT_S = 30  # the watchdog's time in the failure part is 20 s


class Failed(Exception):
    pass


class Program:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.runs = 0

    def command(self, ranks, recipe, sets, flags=(), run_dir=None):
        self.runs += 1
        run_dir = run_dir or self.folder / f"run_{self.runs}"
        runtime = {"runtime.backend": self.options.backend}
        if ranks > 1 and self.options.backend == "cuda":
            runtime["runtime.communicator"] = self.options.communicator
        command = ["mpirun", "-n", str(ranks), str(self.options.bin / "train"), "--recipe", str(recipe), "--run-dir", str(run_dir)]
        for key, value in {**sets, **runtime}.items():
            command += ["--set", f"{key}={value}"]
        return command + list(flags), run_dir

    def run(self, ranks, recipe, sets, flags=(), run_dir=None, timeout=300, more_environment=None):
        """Returns the step events and the seconds that it took."""
        command, run_dir = self.command(ranks, recipe, sets, flags, run_dir)
        start = time.monotonic()
        try:
            result = subprocess.run(command, env={**os.environ, **ENVIRONMENT, **(more_environment or {})}, capture_output=True, text=True,
                                    timeout=timeout, cwd=ROOT)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{' '.join(command)}: no end after {timeout} s\n{(late.stderr or b'')[-1500:]}") from late
        if result.returncode != 0:
            raise Failed(f"{' '.join(command)}: exit code {result.returncode}\n{result.stderr[-2000:]}")
        return steps_of(run_dir), time.monotonic() - start


def steps_of(run_dir):
    path = pathlib.Path(run_dir) / "metrics.jsonl"
    if not path.exists():
        return []
    events = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return [event for event in events if event["type"] == "step"]


def table(title, header, rows):
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    print(f"\n## {title}\n")
    for n, row in enumerate([header, *rows]):
        print("| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths)) + " |")
        if n == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    sys.stdout.flush()


def small(options, steps, **more):
    """Settings that make recipes/quickstart.yaml one short stage on the given tokens, with a learning rate at which rounding stays small."""
    return {"stages.0.steps": steps, "stages.1.steps": 1, "data.train.0.path": options.tokens, "data.validation": "[]",
            "optimizer.learning_rate": 5e-4, "precision.compute": "bf16", "checkpoint.every_steps": 0, "checkpoint.keep": 1,
            "parallel.pipeline": 1, "parallel.data": 1, "parallel.expert": 1, **more}


def layouts_of(ranks):
    found = {f"data {ranks}": {"parallel.data": ranks},
             f"data {ranks}, expert {ranks}": {"parallel.data": ranks, "parallel.expert": ranks},
             "pipeline 2" + (f" x data {ranks // 2}" if ranks > 2 else ""): {"parallel.pipeline": 2, "parallel.data": ranks // 2}}
    if ranks >= 4:
        found[f"pipeline 2 x data {ranks // 2}, expert {ranks // 2}"] = {
            "parallel.pipeline": 2, "parallel.data": ranks // 2, "parallel.expert": ranks // 2}
        found["pipeline 4" + (f" x data {ranks // 4}" if ranks > 4 else "")] = {"parallel.pipeline": 4, "parallel.data": ranks // 4}
    return found


def layouts(program, options):
    recipe = ROOT / "recipes/quickstart.yaml"
    micro = {"parallel.micro_batch_tokens": 512}
    reference, _ = program.run(1, recipe, small(options, 50, **micro))
    rows = []
    worst = 0.0
    for name, sets in layouts_of(options.ranks).items():
        steps, seconds = program.run(options.ranks, recipe, small(options, 50, **micro, **sets))
        difference = max(abs(a["loss"] - b["loss"]) / b["loss"] for a, b in zip(steps[:50], reference[:50], strict=True))
        worst = max(worst, difference)
        rows.append((name, f"{difference:.1e}", f"{steps[49]['loss']:.4f}", f"{seconds:.1f} s"))
    table(f"Losses of 50 steps in bf16, beside one rank ({reference[49]['loss']:.4f} at the end)",
          ("layout", "largest relative difference", "last loss", "run"), rows)
    if not worst < BF16_BOUND:
        raise Failed(f"a layout differs by {worst:.1e}, wanted below {BF16_BOUND:g}")


def endurance(program, options):
    sets = {"parallel.data": options.ranks, "parallel.expert": options.ranks, "parallel.micro_batch_tokens": 512, "balance.method": "none",
            "stages.0.global_batch_tokens": 512 * options.ranks, "optimizer.learning_rate": 4e-3}
    steps, seconds = program.run(options.ranks, ROOT / "recipes/quickstart.yaml", small(options, options.endurance_steps, **sets), timeout=600)
    violations = [step["moe_max_violation"] for step in steps]
    table("Endurance: experts on all ranks, no balancing",
          ("steps", "ranks", "load above the mean, median", "largest", "seconds", "last loss"),
          [(len(steps), options.ranks, f"{statistics.median(violations):.2f}", f"{max(violations):.2f}", f"{seconds:.0f}", f"{steps[-1]['loss']:.4f}")])


def exchange(program, options):
    """The mixture layer of the 1 B recipe: 4 sequences of 8192 tokens, top 4 of 64 experts, rows of 512; smaller without a GPU."""
    del program
    tokens = 32768 if options.backend == "cuda" else 1024
    command = ["mpirun", "-n", str(options.ranks), str(options.bin / "exchange_bench"), "--json", "--backend", options.backend,
               "--communicator", options.communicator, "--tokens", str(tokens)]
    result = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=200, cwd=ROOT, check=False)
    if result.returncode != 0:
        raise Failed(f"{' '.join(command)}: exit code {result.returncode}\n{result.stderr[-2000:]}")
    rows = []
    for line in map(json.loads, result.stdout.splitlines()):
        plain = line["plain_sent_bytes"] / line["plain_seconds"]
        for what in ("dispatch", "rows", "combine", "plain"):
            rate = line["plain_sent_bytes" if what == "plain" else "largest_sent_bytes"] / line[f"{what}_seconds"]
            rows.append((line["routing"], what, f"{line[f'{what}_seconds'] * 1e6:.0f} us", f"{rate / 1e9:.1f} GB/s", f"{100 * rate / plain:.0f} %"))
    table(f"Tokens to their experts and back, {tokens} tokens a rank ('rows': dispatch without its counts)",
          ("routing", "what", "time", "sent by a rank", "of plain"), rows)


def exposed(folder, run):
    """The largest share of the time, over the ranks, in which only NCCL ran; '-' without traces."""
    shares = [float(line.split()[2]) for path in folder.glob(f"trace_{run}_*") for line in path.read_text().splitlines()
              if line.startswith("communication exposed")]
    return f"{max(shares):.1f} %" if shares else "-"


def scaling(program, options):
    rows = []
    alone = None
    ranks = 1
    while ranks <= options.ranks:
        for name, sets in {f"data {ranks}": {}, f"data {ranks}, expert {ranks}": {"parallel.expert": ranks}}.items():
            if ranks == 1 and sets.get("parallel.expert"):
                continue
            sets = {"stages.0.steps": 14, "stages.0.global_batch_tokens": 32768 * ranks, "parallel.data": ranks, "checkpoint.every_steps": 0,
                    "data.train.0.path": options.large_tokens, **sets}
            tracer = options.bin / "libgpu_trace.so"
            if tracer.exists() and options.backend == "cuda":
                # A run of its own: the tracer costs time.
                program.run(ranks, ROOT / "recipes/h200_1b.yaml", sets, timeout=400, more_environment={
                    "CUDA_INJECTION64_PATH": str(tracer), "GPU_TRACE_SKIP_SECONDS": "5", "GPU_TRACE_SECONDS": "1",
                    "GPU_TRACE_OUTPUT": str(program.folder / f"trace_{program.runs + 1}_%p")})
                shutil.rmtree(program.folder / f"run_{program.runs}")
            alone_share = exposed(program.folder, program.runs)
            steps, _ = program.run(ranks, ROOT / "recipes/h200_1b.yaml", sets, timeout=400)
            rate = statistics.median(step["tokens_per_second"] for step in steps[4:]) / ranks
            alone = alone or rate
            rows.append((name, f"{rate * ranks:,.0f}", f"{rate:,.0f}", f"{100 * rate / alone:.1f} %",
                         alone_share, f"{steps[-1]['peak_memory_bytes'] / 2**30:.1f} GiB", f"{100 * (steps[-1]['mfu'] or 0):.1f} %"))
            shutil.rmtree(program.folder / f"run_{program.runs}")
        ranks *= 2
    table("Weak scaling of recipes/h200_1b.yaml: four sequences of 8192 a GPU",
          ("layout", "tokens/s", "a GPU", "of one GPU", "exposed communication", "memory", "MFU, last step"), rows)


def kill_one(program, options, recipe, sets, run_dir):
    """Kills the last rank once step 25 is done; returns the seconds until mpirun has ended."""
    command, _ = program.command(options.ranks, recipe, sets, run_dir=run_dir)
    with subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT) as job:
        deadline = time.monotonic() + 200
        while len(steps_of(run_dir)) < 25:
            if job.poll() is not None or time.monotonic() > deadline:
                job.kill()
                raise Failed(f"the run to be killed ended or stood still early:\n{job.stderr.read()[-2000:]}")
            time.sleep(0.05)
        victims = subprocess.run(["pgrep", "-f", f"train --recipe .*--run-dir {run_dir}"], capture_output=True, text=True, check=False)
        ranks = [int(pid) for pid in victims.stdout.split() if int(pid) != job.pid]
        killed = time.monotonic()
        os.kill(max(ranks), signal.SIGKILL)
        try:
            job.wait(KILL_LIMIT_S + 30)
        except subprocess.TimeoutExpired as late:
            job.kill()
            raise Failed(f"ranks still run {KILL_LIMIT_S + 30} s after one was killed") from late
        return time.monotonic() - killed


def failure(program, options):
    recipe = ROOT / "recipes/quickstart.yaml"
    sets = small(options, 60, **{"parallel.data": options.ranks, "parallel.micro_batch_tokens": 512, "checkpoint.every_steps": 10,
                                 "runtime.watchdog_seconds": 20})
    rows = []
    run_dir = program.folder / "killed"
    seconds = kill_one(program, options, recipe, sets, run_dir)
    rows.append(("a rank killed: all others ended after", f"{seconds:.1f} s"))
    copy = program.folder / "fewer"
    shutil.copytree(run_dir, copy)
    steps, _ = program.run(options.ranks, recipe, sets, ["--resume"], run_dir)
    rows.append((f"resumed on {options.ranks} ranks: to step", steps[-1]["step"]))
    fewer = options.ranks // 2
    steps, _ = program.run(fewer, recipe, {**sets, "parallel.data": fewer}, ["--resume"], copy)
    rows.append((f"resumed on {fewer} ranks: to step", steps[-1]["step"]))
    table("A killed rank", ("what", "measured"), rows)
    if seconds > KILL_LIMIT_S:
        raise Failed(f"the others ended {seconds:.0f} s after the kill, wanted {KILL_LIMIT_S} s")


PARTS = {"layouts": layouts, "endurance": endurance, "failure": failure, "exchange": exchange, "scaling": scaling}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin", help="folder of the programs")
    parser.add_argument("--ranks", type=int, required=True, help="one for each GPU: 2, 4 or 8")
    parser.add_argument("--communicator", default="nccl", choices=["nccl", "staged"])
    parser.add_argument("--backend", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tokens", default=ROOT / "data/kjv_train", help="prefix of a .bin/.idx of byte tokens")
    parser.add_argument("--large-tokens", default=ROOT / "data/h200_1b_train", help="prefix of a .bin/.idx with ids below 32768")
    parser.add_argument("--endurance-steps", type=int, default=2000)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="longhaul_multi_gpu_") as folder:
        program = Program(options, pathlib.Path(folder))
        for part in options.parts:
            try:
                PARTS[part](program, options)
            except Failed as problem:
                failures += 1
                print(f"\n{part}: FAILED: {problem}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
