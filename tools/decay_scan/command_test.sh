#!/usr/bin/env bash
# The decay_scan command from outside: exit codes, messages, JSON. Usage: command_test.sh DECAY_SCAN SOURCE_DIR
set -u
scan=$1 reference=$2/tests/golden/reference
failures=0

# expect CODE TEXT ARGUMENTS...: the exit code, and a text in what is printed.
expect() {
  local code=$1 text=$2 output got
  shift 2
  output=$("$scan" "$@" 2>&1)
  got=$?
  if [[ $got -ne $code || $output != *"$text"* ]]; then
    echo "FAILED: decay_scan $*: exit $got (expected $code), without \"$text\" in:"
    echo "$output"
    failures=$((failures + 1))
  fi
}

quick=(--tiles 16 --dtypes fp16)
expect 0 "first unsafe" --bounds -0.5 "${quick[@]}"
expect 0 '"verdict": "unsafe"' --bounds -5 "${quick[@]}" --json
expect 0 "64 random tokens, bound -5" --bounds -5 "${quick[@]}" --checkpoint "$reference/k3_tiny" --tokens 64
expect 0 "softplus gate, no bound" --bounds -5 "${quick[@]}" --checkpoint "$reference/kl_tiny" --tokens 64
expect 2 "--bounds" --bounds 1
expect 2 "--bounds" --bounds -400
expect 2 "--tiles" --tiles 5
expect 2 "--dtypes" --dtypes fp8
expect 2 "--checkpoint" --data somewhere
expect 6 "/nowhere" --checkpoint "$reference/k3_tiny" --data /nowhere
expect 7 "/nowhere" --checkpoint /nowhere
[ -e /dev/nvidiactl ] || expect 3 "no GPU" --backend cuda
expect 0 "Exit codes" --help
expect 0 "decay_scan 0." --version

exit $((failures > 0))
