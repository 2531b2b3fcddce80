#!/usr/bin/env bash
# How fast checkpoints are written, beside what `dd` with fsync reaches on the same disk, and how long training waits for one that
# is written in the background. Trains a model of few operations and much state for a handful of steps, twice.
#
#   tools/bench/checkpoint_speed.sh [--bin build/bin] [--dir DIR] [--ranks 1] [--experts 128] [--tokens 2048] [--mpiexec mpirun]
#
# DIR is on the disk to measure (a temporary folder there is used and removed); 128 experts make a checkpoint of 1.1 GB, and 2048
# tokens steps that take longer than it takes to write. With shorter steps what is not written when an update is due is copied,
# and training waits for the copy.
# Wanted: at least 80 % of dd, and a wait of less than 5 % of the save. Exit code 1 where one of the two is missed.
set -euo pipefail

bin=build/bin dir=${TMPDIR:-/tmp} ranks=1 experts=128 tokens=2048 mpiexec=mpirun
while [[ $# -gt 0 ]]; do
  case $1 in
    --bin) bin=$2 ;;
    --dir) dir=$2 ;;
    --ranks) ranks=$2 ;;
    --experts) experts=$2 ;;
    --tokens) tokens=$2 ;;
    --mpiexec) mpiexec=$2 ;;
    *) sed -n '2,10p' "$0"; exit 2 ;;
  esac
  shift 2
done
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "$dir/longhaul_checkpoint_speed.XXXXXX")
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none

seq 1 40000 | tr '\n' ' ' > "$work/corpus.txt"
"$bin/prepare" --input "$work/corpus.txt" --format text --tokenizer bytes --output "$work/corpus" --validation-fraction 0.1 > /dev/null

# Saves in the middle of the run and nowhere else: the one at its end is always waited for.
train() {
  "$mpiexec" -n "$ranks" "$bin/train" --recipe "$source_dir/recipes/tiny_k3.yaml" --run-dir "$work/run_$1" \
    --set parallel.data="$ranks" --set parallel.micro_batch_tokens=256 --set model.hidden_size=256 \
    --set model.routed_expert_hidden_size=128 --set model.moe_intermediate_size=256 --set model.num_experts="$experts" \
    --set stages.0.steps=12 --set stages.0.global_batch_tokens="$tokens" --set stages.1.steps=1 \
    --set stages.1.global_batch_tokens=$((256 * ranks)) --set checkpoint.every_steps=3 --set checkpoint.keep=1 --set checkpoint.async="$1" \
    --set validation.every_steps=0 --set validation.tokens=64 --set data.train.0.path="$work/corpus_train" \
    --set data.validation.0.path="$work/corpus_validation" \
    > "$work/train_$1.txt" 2>&1 || { cat "$work/train_$1.txt"; exit 1; }
}
train false
bytes=$(python3 - "$work/run_false/metrics.jsonl" <<'PY'
import json, sys
print([e["bytes"] for e in map(json.loads, open(sys.argv[1])) if e["type"] == "checkpoint"][0])
PY
)
# Three times: the same bytes with dd, and the best of each, because a disk is shared.
: > "$work/dd.txt"
for _ in 1 2 3; do
  start=$(date +%s.%N)
  dd if=/dev/zero of="$work/dd.bin" bs=8M count=$((bytes / 8388608)) conv=fsync 2> /dev/null
  echo "$start $(date +%s.%N)" >> "$work/dd.txt"
  rm "$work/dd.bin"
done
train true

python3 - "$work" "$bytes" <<'PY'
import json, pathlib, sys
work, bytes_ = pathlib.Path(sys.argv[1]), int(sys.argv[2])
dd_bytes = bytes_ // 8388608 * 8388608
dd = max(dd_bytes / (float(end) - float(start)) for start, end in (line.split() for line in open(work / "dd.txt")))
def saves(name):
    return [e for e in map(json.loads, open(work / name / "metrics.jsonl")) if e["type"] == "checkpoint"]
waited = saves("run_false")
background = [e for e in saves("run_true") if e["async"]]
best = max(e["bytes_per_second"] for e in waited)
shares = sorted(e["stall_seconds"] / e["seconds"] for e in background)
print(f"checkpoint of {bytes_ / 1e6:.0f} MB, best of {len(waited)}")
print(f"dd with fsync     {dd / 1e6:8.0f} MB/s")
print(f"saves, waited for {best / 1e6:8.0f} MB/s   {100 * best / dd:.0f} % of dd (wanted: 80)   all: "
      + ", ".join(f"{e['bytes_per_second'] / 1e6:.0f}" for e in waited))
steps = sorted(e["step_ms"] for e in map(json.loads, open(work / "run_true" / "metrics.jsonl")) if e["type"] == "step")
print(f"steps of {steps[len(steps) // 2] / 1000:.2f} s in the median")
for e in background:
    share = 100 * e["stall_seconds"] / e["seconds"]
    print(f"saved in the background in {e['seconds']:.2f} s, training waited {e['stall_seconds']:.3f} s: {share:.1f} %")
print(f"training waited {100 * shares[len(shares) // 2]:.1f} % of a save in the median (wanted: less than 5)")
sys.exit(0 if best >= 0.8 * dd and shares[len(shares) // 2] < 0.05 else 1)
PY
