#!/usr/bin/env bash
# The bench command from outside: exit codes, messages, JSON. Usage: command_test.sh BENCH SOURCE_DIR
set -u
bench=$1 recipe=$2/recipes/tiny_k3.yaml
failures=0

# expect CODE TEXT ARGUMENTS...: the exit code, and a text in what is printed.
expect() {
  local code=$1 text=$2 output got
  shift 2
  output=$("$bench" "$@" 2>&1)
  got=$?
  if [[ $got -ne $code || $output != *"$text"* ]]; then
    echo "FAILED: bench $*: exit $got (expected $code), without \"$text\" in:"
    echo "$output"
    failures=$((failures + 1))
  fi
}

quick=(--seconds 0.01)
expect 0 "attn_res_mix" --list
expect 0 "T=8,I=4,O=512" --op linear --shape T=8,I=4 "${quick[@]}"
expect 0 '"direction": "backward"' --op linear --shape T=8,I=4,O=4 --dtype fp64 --json "${quick[@]}"
expect 0 "KDA layer" --op step --recipe "$recipe" --set stages.0.global_batch_tokens=64 "${quick[@]}"
expect 2 "--op or --list"
expect 2 "kda, kda_unbounded" --op nothing
expect 2 "--recipe" --op step
expect 2 '"Q"' --op kda --shape Q=1
expect 2 "fp32 or fp64" --op kda --dtype bf16
expect 2 "no stage" --op step --recipe "$recipe" --stage nowhere
expect 3 "CPU backend only" --op kda --backend cuda
expect 0 "Exit codes" --help
expect 0 "bench 0." --version

exit $((failures > 0))
