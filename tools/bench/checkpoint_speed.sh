#!/usr/bin/env bash
# How fast checkpoints are written, beside what `dd` with fsync reaches on the same disk, and how long training waits for one that
# is written in the background: by its own clock (stall_seconds of metrics.jsonl), and by how much longer steps take beside a
# save than without one. Trains a model of few operations and much state for a handful of steps.
#
#   tools/bench/checkpoint_speed.sh [--bin build/bin] [--dir DIR] [--ranks 1] [--experts 128] [--tokens "256 2048"]
#     [--compression none] [--mpiexec mpirun]
#
# DIR is on the disk to measure (a temporary folder there is used and removed); 128 experts make a checkpoint of 1.1 GB. A step of
# 256 tokens takes less time than it takes to write, one of 2048 tokens more. One rank on two free cores, or the writer has none.
# Wanted: at least 80 % of dd where nothing is compressed, and a wait of less than 5 % of the save. Exit code 1 where one of the two is missed.
set -euo pipefail

bin=build/bin dir=${TMPDIR:-/tmp} ranks=1 experts=128 tokens="256 2048" compression=none mpiexec=mpirun
while [[ $# -gt 0 ]]; do
  case $1 in
    --bin) bin=$2 ;;
    --dir) dir=$2 ;;
    --ranks) ranks=$2 ;;
    --experts) experts=$2 ;;
    --tokens) tokens=$2 ;;
    --compression) compression=$2 ;;
    --mpiexec) mpiexec=$2 ;;
    *) sed -n '2,12p' "$0"; exit 2 ;;
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

# train NAME ASYNC TOKENS: saves in the middle of the run and nowhere else: the one at its end is always waited for.
train() {
  "$mpiexec" -n "$ranks" "$bin/train" --recipe "$source_dir/recipes/tiny_k3.yaml" --run-dir "$work/run_$1" \
    --set parallel.data="$ranks" --set parallel.micro_batch_tokens=256 --set model.hidden_size=256 \
    --set model.routed_expert_hidden_size=128 --set model.moe_intermediate_size=256 --set model.num_experts="$experts" \
    --set stages.0.steps=18 --set stages.0.global_batch_tokens="$3" --set stages.1.steps=1 \
    --set stages.1.global_batch_tokens=$((256 * ranks)) --set checkpoint.every_steps=4 --set checkpoint.keep=1 --set checkpoint.async="$2" --set checkpoint.compression="$compression" \
    --set validation.every_steps=0 --set validation.tokens=64 --set data.train.0.path="$work/corpus_train" \
    --set data.validation.0.path="$work/corpus_validation" \
    > "$work/train_$1.txt" 2>&1 || { cat "$work/train_$1.txt"; exit 1; }
}
train waited false 256
bytes=$(python3 - "$work/run_waited/metrics.jsonl" <<'PY'
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
for count in $tokens; do
  train "$count" true "$count"
done

python3 - "$work" "$bytes" "$compression" $tokens <<'PY'
import json, pathlib, statistics, sys
work, bytes_ = pathlib.Path(sys.argv[1]), int(sys.argv[2])
dd_bytes = bytes_ // 8388608 * 8388608
dd = max(dd_bytes / (float(end) - float(start)) for start, end in (line.split() for line in open(work / "dd.txt")))

def events(name):
    return list(map(json.loads, open(work / f"run_{name}" / "metrics.jsonl")))

waited = [e for e in events("waited") if e["type"] == "checkpoint"]
best = max(e["bytes_per_second"] for e in waited)
print(f"checkpoint of {bytes_ / 1e6:.0f} MB, best of {len(waited)}")
print(f"dd with fsync     {dd / 1e6:8.0f} MB/s")
print(f"saves, waited for {best / 1e6:8.0f} MB/s   {100 * best / dd:.0f} % of dd (wanted: 80)   all: "
      + ", ".join(f"{e['bytes_per_second'] / 1e6:.0f}" for e in waited))
fails = sys.argv[3] == "none" and best < 0.8 * dd  # compressing is slower than a disk, and meant to be chosen

for tokens in sys.argv[4:]:
    run = events(tokens)
    # A step lies beside a save when it comes after the step that was saved and before the line about the save.
    first_stage = next(e["stage"] for e in run if e["type"] == "step")
    steps = [e for e in run if e["type"] == "step" and e["stage"] == first_stage]
    saves = [e for e in run if e["type"] == "checkpoint" and e["async"]]
    beside = {e["step"]: [] for e in saves}
    for save in saves:
        for e in run[:run.index(save)]:
            if e["type"] == "step" and e["step"] > save["step"] and e["stage"] == first_stage:
                beside[save["step"]].append(e["step_ms"] / 1000)
    busy = {save["step"] + i + 1 for save in saves for i in range(len(beside[save["step"]]))}
    alone = statistics.median(e["step_ms"] / 1000 for e in steps[1:] if e["step"] not in busy)
    shares, longer = [], []
    print(f"steps of {alone:.2f} s where nothing is saved:")
    for save in saves:
        shares.append(save["stall_seconds"] / save["seconds"])
        # What begin() takes lies between two steps; the rest of the stall is counted twice here.
        longer.append((sum(beside[save["step"]]) - len(beside[save["step"]]) * alone + save["stall_seconds"]) / save["seconds"])
        print(f"  saved in the background in {save['seconds']:.2f} s, training waited {save['stall_seconds']:.3f} s: "
              f"{100 * shares[-1]:.1f} %; the {len(beside[save['step']])} steps beside it were longer by {100 * longer[-1]:.1f} %")
    print(f"  in the median training waited {100 * statistics.median(shares):.1f} % of a save (wanted: less than 5); "
          f"steps were longer by {100 * statistics.median(longer):.1f} % of it")
    fails |= statistics.median(shares) >= 0.05
sys.exit(1 if fails else 0)
PY
