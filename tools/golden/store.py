"""Reads, writes and compares golden files: safetensors, written by hand so that no package beyond NumPy is needed.

Format: 8 bytes with the length of a JSON header, the header (padded to 8 bytes), the raw little-endian tensors. Tensors
are ordered by falling element size, so that each is aligned.
"""
import json
from pathlib import Path
import struct

import numpy as np

DTYPES = {"F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32}
DTYPE_NAMES = {np.dtype(kind): name for name, kind in DTYPES.items()}


def read_safetensors(path):
    """Returns ({name: array}, {metadata key: string})."""
    raw = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    metadata = header.pop("__metadata__", {})
    data, tensors = raw[8 + length:], {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def write_safetensors(path, tensors, metadata):
    header, parts, offset = {"__metadata__": metadata}, [], 0
    for name in sorted(tensors, key=lambda name: (-tensors[name].itemsize, name)):
        array = np.ascontiguousarray(tensors[name])
        end = offset + array.nbytes
        header[name] = {"dtype": DTYPE_NAMES[array.dtype], "shape": list(tensors[name].shape), "data_offsets": [offset, end]}
        parts.append(array.tobytes())
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def relative_difference(got, wanted):
    """max |got - wanted| / max |wanted|; infinite where shape, dtype or an integer differs or a number is not finite."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return np.inf
    if np.issubdtype(wanted.dtype, np.integer):
        return 0.0 if np.array_equal(got, wanted) else np.inf
    if not (np.all(np.isfinite(got)) and np.all(np.isfinite(wanted))):
        return np.inf
    difference = np.max(np.abs(got - wanted), initial=0.0)
    size = np.max(np.abs(wanted), initial=0.0)
    if difference == 0.0:
        return 0.0
    return float(difference / size) if size > 0.0 else np.inf


def worst_difference(got, wanted):
    """The largest relative difference of two tensor dictionaries and its name; a missing tensor counts as infinite."""
    missing = set(got) ^ set(wanted)
    if missing:
        return np.inf, f"{sorted(missing)[0]} is in one of the two only"
    return max(((relative_difference(got[name], wanted[name]), name) for name in wanted), default=(0.0, ""))
