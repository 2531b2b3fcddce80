#!/usr/bin/env python3
"""Compares the whole-model reference in this folder with what other implementations computed.

    python3 tools/golden/check_reference.py [DIR]...

DIR holds config.json, model.safetensors and reference.safetensors; by default the folders of tests/golden/reference.
Prints the differences of logits, loss, routes and gradients, and returns 1 beyond what float32 noise explains.
"""
import argparse
import json
from pathlib import Path
import re
import sys

import numpy as np

from formulas import model
import store

DEFAULT_FOLDER = Path(__file__).resolve().parents[2] / "tests" / "golden" / "reference"
PREFIX = "language_model."
# Those files come from float32 programs.
TOLERANCES = {"logits": 1e-4, "loss": 1e-5, "gradient": 1e-3}


def load_weights(folder):
    """float64 weights by released names without "language_model."; the dense first layer's other name is translated."""
    tensors, _ = store.read_safetensors(folder / "model.safetensors")

    def released(name):
        return re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", name.removeprefix(PREFIX))

    return {released(name): value.astype(np.float64) for name, value in tensors.items()}


def as_transformers(grads, options):
    """The gradients under the parameter names of Hugging Face transformers, which merges convolutions and experts."""
    result = {}
    for layer in range(options["num_hidden_layers"]):
        own = model.below(grads, f"model.layers.{layer}.")
        attended, moe = model.below(own, "self_attn."), model.below(own, "block_sparse_moe.")
        renamed = {name: value for name, value in own.items() if not name.startswith(("self_attn.", "block_sparse_moe."))}
        for name, value in attended.items():
            gate = "forget_gate." if name in ("A_log", "dt_bias") or name.startswith(("f_a_", "f_b_")) else ""
            renamed[f"self_attn.{gate}{name}"] = value
        if "q_conv1d.weight" in attended:
            renamed["self_attn.conv1d.weight"] = np.concatenate([attended[f"{name}_conv1d.weight"] for name in "qkv"])
        if moe:
            def experts(index):
                return np.stack([moe[f"experts.{e}.w{index}.weight"] for e in range(options["num_experts"])])
            renamed |= {f"mlp.{name}": value for name, value in moe.items() if not name.startswith("experts.")}
            renamed["mlp.experts.gate_up_proj"] = np.concatenate([experts(1), experts(3)], axis=1)
            renamed["mlp.experts.down_proj"] = experts(2)
        result |= {f"model.layers.{layer}.{name}": value for name, value in renamed.items()}
    return result | {name: value for name, value in grads.items() if ".layers." not in name}


def compare(folder):
    """Prints the differences of one folder; returns whether all are within the tolerances."""
    options = model.read_config(json.loads((folder / "config.json").read_text()))
    reference, _ = store.read_safetensors(folder / "reference.safetensors")
    input_ids, targets = reference["input_ids"][0], reference["targets"][0]
    cu_seqlens = reference.get("cu_seqlens", np.array([0, len(input_ids)], np.int32))
    loss, logits, routing, grads = model.evaluate(load_weights(folder), input_ids, targets, cu_seqlens, options)

    def difference(got, wanted):
        return store.relative_difference(np.asarray(got, np.float64), np.asarray(wanted, np.float64))

    wanted = {name.removeprefix("grad.").removeprefix(PREFIX): value
              for name, value in reference.items() if name.startswith("grad.")}
    ours = {**as_transformers(grads, options), **grads}
    unmatched = sorted(set(wanted) - set(ours))
    gradient, name = max((difference(ours[name], wanted[name]), name) for name in wanted if name in ours)
    route_names = [name for name in reference if name.startswith("routes.")]
    same_routes = [np.array_equal(np.sort(routing[int(name.split(".")[1])][0], axis=-1), reference[name]) for name in route_names]
    found = {"logits": difference(logits[None], reference["logits"]), "loss": difference(np.reshape(loss, 1), reference["loss"]),
             "gradient": gradient}
    margin = min(float(np.min(ranked[:, -2] - ranked[:, -1])) for _, ranked in routing.values())
    print(f"{folder.name}: logits {found['logits']:.1e} of the largest, loss {found['loss']:.1e}, "
          f"routes equal in {sum(same_routes)} of {len(same_routes)} layers (least margin {margin:.1e}), "
          f"{len(wanted) - len(unmatched)} of {len(wanted)} gradients compared, worst {gradient:.1e} in {name}")
    if unmatched:
        print(f"  without counterpart: {', '.join(unmatched)}")
    return all(found[key] <= limit for key, limit in TOLERANCES.items()) and all(same_routes) and not unmatched


def main():
    parser = argparse.ArgumentParser(description="Compares the JAX reference with other implementations' numbers.")
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    folders = parser.parse_args().folders or sorted(path.parent for path in DEFAULT_FOLDER.glob("*/config.json"))
    results = [compare(folder) for folder in folders]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
