"""Reads what a run leaves: metrics.jsonl and checkpoints, without any of the project's own code."""

import functools
import json
import math
import sys

try:
    import h5py
    import numpy as np
except ImportError as error:
    print(f"skipped: {error}; scripts/setup.sh installs it")
    sys.exit(4)  # which CTest counts as skipped

TIMING = {"tokens_per_second", "step_ms", "peak_memory_bytes", "tflops_per_rank", "mfu"}


def events(run_dir, kind=None):
    """The lines of metrics.jsonl, or those of one type. A line that is not JSON is an error."""
    try:
        text = (run_dir / "metrics.jsonl").read_text()
    except FileNotFoundError:
        return []
    lines = text.split("\n")
    found = [json.loads(line) for line in lines[:-1]]  # behind the last newline stands nothing, or a line being written
    return [event for event in found if kind is None or event["type"] == kind]


def steps(run_dir):
    """{step: line}; the last line of a step wins."""
    return {event["step"]: event for event in events(run_dir, "step")}


def without_timing(line):
    return {key: value for key, value in line.items() if key not in TIMING}


def checkpoint(run_dir, step):
    return run_dir / "checkpoints" / f"step_{step:08d}"


def checkpoint_names(run_dir):
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir()) if (run_dir / "checkpoints").exists() else []


@functools.lru_cache(maxsize=4)  # opening hundreds of virtual datasets is what takes the time of a comparison
def tensors(checkpoint_dir):
    """{name: array} of every global tensor, through index.h5. NaN would be a piece that is missing."""
    found = {}
    with h5py.File(checkpoint_dir / "index.h5", "r") as file:
        file.visititems(lambda name, item: found.__setitem__(name, item[()]) if isinstance(item, h5py.Dataset) else None)
    return found


def manifest(checkpoint_dir):
    return json.loads((checkpoint_dir / "manifest.json").read_text())


def documents(checkpoint_dir):
    """The data position, the progress: everything in a checkpoint that is not a tensor."""
    return manifest(checkpoint_dir)["documents"]


def value_hashes(checkpoint_dir):
    """{name: [where a piece lies, and the hash of its values' bytes]}, as the manifest has it, compressed or not."""
    return {tensor["name"]: [(piece["offset"], piece["shape"], piece["xxh3"]) for piece in tensor["pieces"]]
            for tensor in manifest(checkpoint_dir)["tensors"]}


def bitwise_differences(left, right):
    """What differs between two checkpoints, as a list of texts: tensors bit by bit, and the documents. This comparison
    is the judge of all resume tests; resume_test.py holds its negative controls."""
    a, b = tensors(left), tensors(right)
    found = [f"{name} is only in one" for name in sorted(a.keys() ^ b.keys())]
    for name in sorted(a.keys() & b.keys()):
        if a[name].dtype != b[name].dtype or a[name].shape != b[name].shape or a[name].tobytes() != b[name].tobytes():
            found.append(f"{name} differs")
    left_documents, right_documents = documents(left), documents(right)
    for name in sorted(left_documents.keys() | right_documents.keys()):
        if left_documents.get(name) != right_documents.get(name):
            found.append(f"document {name}: {left_documents.get(name)} and {right_documents.get(name)}")
    return found


def metric_differences(left, right, first=1, last=math.inf):
    """Lines of the steps from `first` to `last` that differ in anything but timing, as texts."""
    a, b = steps(left), steps(right)
    found = []
    for step in sorted(step for step in a.keys() | b.keys() if first <= step <= last):
        if step not in a or step not in b:
            found.append(f"step {step} is only in one")
        elif without_timing(a[step]) != without_timing(b[step]):
            found.append(f"step {step}: {without_timing(a[step])} and {without_timing(b[step])}")
    return found


def relative_difference(a, b):
    return 0.0 if a == b else abs(a - b) / max(abs(a), abs(b))


def worst_difference(left, right, keys=("loss", "grad_norm")):
    """Largest relative difference of these metrics over all steps of both runs, with its place."""
    a, b = steps(left), steps(right)
    if a.keys() != b.keys():
        return math.inf, f"steps {sorted(a.keys() ^ b.keys())} are only in one"
    worst, place = 0.0, "nowhere"
    for step in a:
        for key in keys:
            difference = relative_difference(a[step][key], b[step][key])
            if not difference <= worst:  # NaN counts
                worst, place = difference, f"{key} of step {step}: {a[step][key]!r} and {b[step][key]!r}"
    return worst, place


def worst_tensor_difference(left, right, prefix="model/"):
    """Largest difference of a tensor relative to its largest value."""
    a, b = tensors(left), tensors(right)
    if a.keys() != b.keys():
        return math.inf, f"{sorted(a.keys() ^ b.keys())} are only in one"
    worst, place = 0.0, "nowhere"
    for name in a:
        if name.startswith(prefix):
            scale = float(np.abs(a[name]).max()) or 1.0
            difference = float(np.abs(a[name].astype(np.float64) - b[name]).max()) / scale
            if not difference <= worst:
                worst, place = difference, name
    return worst, place
