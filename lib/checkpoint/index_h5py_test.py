"""Reads index.h5 with h5py: every global tensor must have the bytes that were saved, also after the directory has moved.

Usage: index_h5py_test.py CHECKPOINT_TEST_PROGRAM. Exit code 4 (skipped) without h5py.
"""
import os
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(4)

DTYPES = {"f64": "<f8", "f32": "<f4", "bf16": "<u2", "i64": "<i8", "i32": "<i4", "u8": "|u1"}


def check(index, folder):
    assert index.attrs["step"] == 10 and index.attrs["tokens"] == 10000, dict(index.attrs)
    text = {key: index.attrs[key] for key in ("stage", "recipe", "versions")}
    text = {key: value.decode() if isinstance(value, bytes) else value for key, value in text.items()}
    assert text["stage"] == "8k" and text["recipe"] == "run: {name: test}\n" and "longhaul" in text["versions"], text
    lines = open(os.path.join(folder, "tensors.txt"), encoding="utf-8").read().splitlines()
    for line in lines:
        file, name, dtype, shape = line.split(" ", 3)
        dataset = index[name]
        assert dataset.dtype == numpy.dtype(DTYPES[dtype]), (name, dataset.dtype)
        assert list(dataset.shape) == [int(size) for size in shape.strip("[]").split(",") if size.strip()], (name, dataset.shape)
        marked = "dtype" in dataset.attrs
        assert marked == (dtype == "bf16"), name
        values = numpy.asarray(dataset[()])
        assert values.tobytes() == open(os.path.join(folder, file), "rb").read(), name
    names = []
    index.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    assert len(names) == len(lines) == 11, names


with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.argv[1], "write a checkpoint for h5py"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    moved = os.path.join(folder, "moved")
    os.rename(os.path.join(folder, "checkpoints", "step_00000010"), moved)
    with h5py.File(os.path.join(moved, "index.h5"), "r") as opened:
        check(opened, folder)
    os.remove(os.path.join(moved, "rank_00001.h5"))
    with h5py.File(os.path.join(moved, "index.h5"), "r") as opened:
        assert numpy.isnan(opened["model/norm.weight"][4:]).all(), "what is missing must not look like data"
print("index.h5 holds every tensor")
