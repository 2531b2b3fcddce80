#!/usr/bin/env bash
# The convert command from outside, with models that were trained: exit codes, messages, and that training starts from an
# imported model as from the original. Usage: convert_test.sh BIN_DIR SOURCE_DIR
set -u
bin=$1
source_dir=$2
convert=$bin/convert
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect CODE TEXT ARGUMENTS...: the exit code of convert, and a text in what it prints.
expect() {
  local code=$1 text=$2 output got
  shift 2
  output=$("$convert" "$@" 2>&1)
  got=$?
  if [[ $got -ne $code || $output != *"$text"* ]]; then
    echo "FAILED: convert $*: exit $got (expected $code), without \"$text\" in:"
    echo "$output"
    failures=$((failures + 1))
  fi
}

fail() {
  echo "FAILED: $1"
  failures=$((failures + 1))
}

# train NAME ARGUMENTS...: a short run of the tiny recipe on a small corpus.
train() {
  local name=$1
  shift
  "$bin/train" --recipe "$source_dir/recipes/tiny_k3.yaml" --run-dir "$work/$name" --set "data.train=[{path: $work/corpus}]" \
    --set "data.validation=[]" --set validation.every_steps=0 --set runtime.deterministic=true "$@" > "$work/$name.log" 2>&1 ||
    { cat "$work/$name.log"; fail "train of $name"; }
}
# The loss of the first step after a start.
first_loss() {
  sed -n 's/.*"type":"step".*/&/p' "$work/$1/metrics.jsonl" | sed -n 's/.*"loss":\([^,}]*\).*/\1/p' | head -n 1
}

expect 0 "Usage" --help
expect 0 "hdf5" --version
expect 2 "--from is required" import --to "$work/x"
expect 2 "--dtype" export --from "$work/x" --to "$work/y" --dtype fp16
expect 2 "required" diff "$work/x"
expect 5 "neither a checkpoint" verify "$work/none"
expect 5 "neither a checkpoint" inspect "$work/none"
expect 5 "neither a checkpoint" export --from "$work/none" --to "$work/y"
expect 7 "config.json" import --from "$work/none" --to "$work/y"

for _ in $(seq 40); do
  printf 'It was the best of times, it was the worst of times, %s\n\n' "$RANDOM"
done > "$work/text.txt"
"$bin/prepare" --input "$work/text.txt" --tokenizer bytes --document-separator blank-line --output "$work/corpus" > /dev/null || fail "prepare"
train first --stop-at-step 3

run=$work/first
expect 0 "kimi_k3" export --from "$run" --to "$work/released" --dtype fp32 --max-shard-size 100KB
expect 2 "exists" export --from "$run" --to "$work/released"
expect 2 "is no size" export --from "$run" --to "$work/y" --max-shard-size 5gb
expect 7 "MXFP4 needs groups of 32" export --from "$run" --to "$work/y" --experts mxfp4
expect 0 "parameters" import --from "$work/released" --to "$work/imported"
expect 0 "equal" diff "$run" "$work/released"
expect 0 "equal" diff "$work/released" "$work/imported"
expect 0 "kimi_k3" export --from "$run" --imported "$work/imported" --to "$work/beside" --dtype fp32
expect 0 "equal" diff "$work/released" "$work/beside"
expect 7 "was not made by an import" export --from "$work/imported" --imported "$run" --to "$work/y"
expect 7 "only in A" diff "$run" "$work/imported"
expect 0 '"step": 3' inspect "$run" --json
expect 0 "imported" inspect "$work/imported"
expect 0 "kimi_k3" inspect "$work/released"
expect 0 "all as saved" verify "$run"
expect 0 "exactly the model" verify "$work/released"
expect 0 "bf16" export --from "$run" --to "$work/rounded"
expect 7 "DIFFERENT" diff "$work/released" "$work/rounded"
expect 0 "within the tolerance" diff "$work/released" "$work/rounded" --tolerance 0.01

# Training starts from the imported model as it does from the original.
train from_original --init-from "$(ls -d "$run"/checkpoints/step_*)" --stop-at-step 1
train from_imported --init-from "$work/imported" --stop-at-step 1
if [[ -z $(first_loss from_original) || $(first_loss from_original) != "$(first_loss from_imported)" ]]; then
  fail "losses differ: $(first_loss from_original) from the original, $(first_loss from_imported) from the imported model"
fi

# Damage: a byte of the checkpoint, a shard that is gone.
printf '\x55' | dd of="$work/imported/rank_00000.h5" bs=1 seek=20000 conv=notrunc status=none
expect 5 "damaged" verify "$work/imported"
expect 5 "damaged" export --from "$work/imported" --to "$work/y"
rm "$work"/released/model-00002-of-*.safetensors
expect 7 "model-00002-of" import --from "$work/released" --to "$work/y"
expect 7 "model-00002-of" verify "$work/released"
if compgen -G "$work/y*" > /dev/null || compgen -G "$work/.y*" > /dev/null; then
  fail "refused conversions left $(ls -d "$work"/y* "$work"/.y*)"
fi
exit $((failures > 0))
