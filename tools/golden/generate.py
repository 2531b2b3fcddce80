#!/usr/bin/env python3
"""Writes the golden files of tests/golden from the JAX reference in this folder, or checks the stored ones.

    python3 tools/golden/generate.py [--only OP]... [--check] [--list] [--output DIR]

Writing leaves a file alone whose numbers agree to 1e-12 and whose metadata agrees but for the date, so that a second run
changes nothing. Exit code: 0 all well, 1 a stored file differs, is missing or has no case, 4 JAX is not installed.
"""
import argparse
import datetime
import hashlib
import inspect
import json
from pathlib import Path
import sys

try:
    import jax
except ImportError:
    print("generate.py needs JAX on the CPU: python3 -m pip install jax", file=sys.stderr)
    sys.exit(4)
import numpy as np

from case import as_text
from cases import MODULES
import store

HERE = Path(__file__).resolve().parent
DEFAULT_OUTPUT = HERE.parents[1] / "tests" / "golden"
SAME_NUMBERS = 1e-12      # on one machine the numbers are equal bit for bit; this allows for other vector units
CHECK_TOLERANCE = 1e-10   # for --check, which also has to hold with another release of JAX
FOREIGN = {"reference"}   # folders of tests/golden that other programs computed


def sha256_of(paths):
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def metadata_of(case, module):
    """What a file says about its origin; all values are strings, as the format wants."""
    script = Path(inspect.getfile(module))
    return {
        "format": "pt",   # Hugging Face loaders insist on this key
        "generator": f"tools/golden/cases/{script.name}",
        "generator_sha256": sha256_of([script]),
        "formulas_sha256": sha256_of([HERE / "case.py", *sorted((HERE / "formulas").glob("*.py"))]),
        "jax": jax.__version__, "numpy": np.__version__,
        "op": case.op, "case": case.name, "about": case.about, "seed": str(case.seed),
        "date": datetime.date.today().isoformat(),
        **{name: as_text(value) for name, value in case.options.items()},
    }


def without_date(metadata):
    return {key: value for key, value in metadata.items() if key != "date"}


def compare(path, content):
    """(largest relative difference, name of the tensor) of one stored file against what was computed now."""
    if not path.exists():
        return np.inf, "the file is missing"
    if path.suffix == ".json":
        return (0.0, "") if json.loads(path.read_text()) == content else (np.inf, "the content differs")
    return store.worst_difference(content, store.read_safetensors(path)[0])


def write(path, content, metadata):
    """Writes one file unless it is there already; returns whether it wrote."""
    difference, _ = compare(path, content)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        if difference > 0.0:
            path.write_text(json.dumps(content, indent=1) + "\n")
        return difference > 0.0
    if difference <= SAME_NUMBERS and without_date(store.read_safetensors(path)[1]) == without_date(metadata):
        return False
    store.write_safetensors(path, content, metadata)
    return True


def check(path, content, metadata):
    """Compares one stored file, prints one line, returns whether it agrees."""
    difference, name = compare(path, content)
    agrees = difference <= CHECK_TOLERANCE
    stale = agrees and path.suffix != ".json" and without_date(store.read_safetensors(path)[1]) != without_date(metadata)
    note = " (written by another version of the generator)" if stale else ""
    where = f"  {name}" if difference > 0.0 else ""
    print(f"{'ok' if agrees else 'DIFFERS':8}{path.parent.name}/{path.name}  {difference:.1e}{where}{note}")
    return agrees


def orphans(output, expected):
    """Stored golden files that no case produces."""
    stored = {path for kind in ("*.safetensors", "*.json") for path in output.rglob(kind)
              if path.relative_to(output).parts[0] not in FOREIGN}
    return sorted(stored - expected)


def main():
    parser = argparse.ArgumentParser(description="Writes or checks the golden files of tests/golden.")
    parser.add_argument("--only", metavar="OP", action="append", help="only this op; repeatable")
    parser.add_argument("--check", action="store_true", help="compare with the stored files and write nothing")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, metavar="DIR", help="folder of the golden files")
    arguments = parser.parse_args()

    cases = [(case, module) for module in MODULES for case in module.CASES]
    unknown = set(arguments.only or ()) - {case.op for case, _ in cases}
    if unknown:
        parser.error(f"no such op: {', '.join(sorted(unknown))}; known: {', '.join(sorted({case.op for case, _ in cases}))}")
    if arguments.only:
        cases = [(case, module) for case, module in cases if case.op in arguments.only]
    if arguments.list:
        for case, _ in cases:
            print(f"{case.op}/{case.name}: {case.about}")
        return 0

    all_well, written, expected = True, 0, set()
    for case, module in cases:
        metadata = metadata_of(case, module)
        for name, content in case.files().items():
            path = arguments.output / case.op / name
            expected.add(path)
            if arguments.check:
                all_well &= check(path, content, metadata)
            elif write(path, content, metadata):
                written += 1
                print(f"wrote {case.op}/{name}")
    if not arguments.only:
        for path in orphans(arguments.output, expected):
            all_well = False
            print(f"ORPHAN  {path.relative_to(arguments.output)} has no case; delete it", file=sys.stderr)
    outcome = f"{written} written" if not arguments.check else "all agree" if all_well else "not all agree"
    print(f"{len(expected)} files, {outcome}")
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
