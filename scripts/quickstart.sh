#!/usr/bin/env bash
# From nothing to a trained model on the CPU: installs what is missing, builds, prepares the text of the King James Bible,
# trains recipes/quickstart.yaml on four ranks through two context lengths, and says what came out.
#
#   scripts/quickstart.sh [--steps N] [--run-dir DIR] [--bin DIR] [TRAIN_FLAG...]
#
#   --steps N      every stage takes N steps instead of the recipe's
#   --run-dir DIR  instead of runs/quickstart
#   --bin DIR      the programs are there: installs and builds nothing
#
# Other flags go to train. A second call prepares nothing again and starts the run afresh, replacing the one before.
set -euo pipefail
cd "$(dirname "$0")/.."

recipe=recipes/quickstart.yaml
run=runs/quickstart
corpus=data/kjv
bin=
flags=()
while [ $# -gt 0 ]; do
  case "$1" in
    --steps) flags+=(--set "stages.0.steps=${2:?--steps needs a number}" --set "stages.1.steps=$2"); shift 2 ;;
    --run-dir) run=${2:?--run-dir needs a folder}; shift 2 ;;
    --bin) bin=${2:?--bin needs a folder}; shift 2 ;;
    -h | --help) sed -n '2,/^set/{/^set/d; s/^# \{0,1\}//; p}' "$0"; exit 0 ;;
    *) flags+=("$1"); shift ;;
  esac
done

say() { printf '\n== %s\n' "$*"; }

if [ -z "$bin" ]; then
  scripts/setup.sh
  say "Building"
  scripts/dev build
  bin=build/bin
fi

# One verse a line, an empty line between chapters: a chapter is a document. The report is written last and marks success.
if [ ! -f "$corpus.report.txt" ]; then
  say "Preparing the corpus: the package bible-kjv, as bytes"
  mkdir -p data
  bible -f gen1:1-rev22:21 |
    awk '{ split($1, ref, ":"); if (ref[1] != chapter && NR > 1) print ""; chapter = ref[1]; sub(/^[^ ]+ /, ""); print }' >"$corpus.txt"
  "$bin/prepare" --input "$corpus.txt" --format text --document-separator blank-line --tokenizer bytes --output "$corpus" \
    --validation-fraction 0.03 >"$corpus.report.part"
  mv "$corpus.report.part" "$corpus.report.txt"
fi
cat "$corpus.report.txt"

# More ranks than cores are welcome, also as root in a container; each rank computes on one thread.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

train=(mpirun -n 4 "$bin/train" --recipe "$recipe" --run-dir "$run")
say "Training: ${train[*]} --overwrite ${flags[*]}"
"${train[@]}" --overwrite "${flags[@]}"

say "Result"
more=$(mktemp)
trap 'rm -f "$more"' EXIT
python3 - "$run/metrics.jsonl" "$corpus.report.txt" "$more" <<'PYTHON'
import json, math, sys

events = [json.loads(line) for line in open(sys.argv[1])]
steps = [e for e in events if e["type"] == "step"]
validations = [e for e in events if e["type"] == "validation"]
# The row "all" of the table that prepare prints: name documents tokens bytes unigram(nats bit/B) bigram(nats bit/B).
bigram = next(float(line.split()[6]) for line in open(sys.argv[2]) if line.startswith("all "))
print(f"training loss    {steps[0]['loss']:.4f} nats a byte at step {steps[0]['step']}, {steps[-1]['loss']:.4f} at step {steps[-1]['step']}")
loss = validations[-1]["loss"]
print(f"validation loss  {loss:.4f} nats a byte, {loss / math.log(2):.4f} bits, after {steps[-1]['tokens']} tokens")
print(f"bigram entropy   {bigram:.4f} nats a byte: the best that a model can do which sees one byte of context")
print("The loss is below the bigram entropy: the model uses context." if loss < bigram else
      "The loss is not below the bigram entropy yet: train for more steps.")

# How to go on: 100 more steps of the last stage.
stages = [e for e in events if e["type"] == "stage"]
print(f"stages.{len(stages) - 1}.steps={stages[-1]['last_step'] - stages[-1]['first_step'] + 101}", file=open(sys.argv[3], "w"))
PYTHON
newest=$(cat "$run/checkpoints/latest")
echo "checkpoint       $run/checkpoints/$newest"
if [ -x "$bin/report" ]; then
  bigram=$(awk '$1 == "all" { print $7 }' "$corpus.report.txt")
  "$bin/report" "$run" --output "$run/report.html" --reference "bigram entropy=$bigram"
  echo "report           $run/report.html"
fi

environment="OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1"
cat <<NEXT

== What to try next
For mpirun as root or with more ranks than cores:  export $environment
What a recipe would do, without doing it, for any number of ranks:
  $bin/train --recipe $recipe --check
Go on where the run ended, with 100 more steps of the long context:
  mpirun -n 4 $bin/train --recipe $recipe --run-dir $run --resume --set $(cat "$more")
The same model on two ranks, without a pipeline; the losses agree to rounding:
  mpirun -n 2 $bin/train --recipe $recipe --run-dir runs/two_ranks --set parallel.pipeline=1
Look into the checkpoint with any HDF5 tool:
  h5ls -r $run/checkpoints/$newest/index.h5 | head
Read the recipe ($recipe), then lib/ARCHITECTURE.md; run the tests with scripts/test.sh.
NEXT
