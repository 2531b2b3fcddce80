#!/usr/bin/env python3
"""Draws the file that compare.py wrote, as nanoseconds for a token and head:

    plot.py kda_peers.json kda_peers.svg

Three panels: forward with everything fused, forward and backward, and the second again with channels that remember. Needs
matplotlib."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

SHAPES = {"8192 x 96": 8192 * 96, "8192 x 64": 8192 * 64, "8192 x 16": 8192 * 16, "65536 x 32": 65536 * 32, "262144 x 16": 262144 * 16,
          "1048576 x 8": 1048576 * 8, "packed 6 x 96": 8192 * 96, "packed 8 x 1024 x 96": 8192 * 96}
# What is drawn of each package: its name, and the form of its inputs in each panel.
PACKAGES = {"ours": ("Longhaul", "#1f5fa8"), "cudnn": ("cuDNN frontend 1.32", "#e08a1e"), "fla": ("flash-linear-attention 0.6", "#8d8d8d")}
PANELS = [("forward, norms and gates fused", "strong", "forward", {"ours": "raw", "cudnn": "raw", "fla": "raw"}),
          ("forward + backward (FLA: fused)", "strong", "both", {"ours": "given", "cudnn": "given", "fla": "raw"}),
          ("the same, a channel in 16 remembers", "slow", "both", {"ours": "given", "cudnn": "given"})]


def main():
    source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        times = {(t["gates"], t["pass"], t["who"], t["form"], t["shape"]): t["ms"] for t in json.load(file)["times"]}
    matplotlib.rcParams.update({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "kda_peers"})
    figure, axes = plt.subplots(1, len(PANELS), figsize=(13, 4.2), layout="constrained")
    for axis, (title, gates, what, forms) in zip(axes, PANELS, strict=True):
        shapes = [s for s in SHAPES if (gates, what, "ours", forms["ours"], s) in times]
        height = 0.8 / len(forms)
        for i, (who, form) in enumerate(forms.items()):
            label, color = PACKAGES[who]
            for row, shape in enumerate(shapes):
                ms = times.get((gates, what, who, form, shape))
                if ms is not None:
                    value = ms * 1e6 / SHAPES[shape]
                    at = row + (i - (len(forms) - 1) / 2) * height
                    axis.barh(at, value, height * 0.92, color=color, label=label if row == 0 else None)
                    axis.text(value, at, f" {value:.2f}" if value < 10 else f" {value:.0f}", va="center", fontsize=7)
        axis.set_title(title, fontsize=9)
        axis.set(yticks=range(len(shapes)), yticklabels=shapes, xlabel="ns a token and head, less is faster")
        axis.invert_yaxis()
        axis.margins(x=0.12)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False, fontsize=8)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
