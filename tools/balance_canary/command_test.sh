#!/usr/bin/env bash
# The balance_canary command from outside: exit codes, messages, JSON. Usage: command_test.sh BALANCE_CANARY SOURCE_DIR
set -u
canary=$1 recipe=$2/recipes/tiny_k3.yaml
failures=0

# expect CODE TEXT ARGUMENTS...: the exit code, and a text in what is printed.
expect() {
  local code=$1 text=$2 output got
  shift 2
  output=$("$canary" "$@" 2>&1)
  got=$?
  if [[ $got -ne $code || $output != *"$text"* ]]; then
    echo "FAILED: balance_canary $*: exit $got (expected $code), without \"$text\" in:"
    echo "$output"
    failures=$((failures + 1))
  fi
}

expect 0 "promote: the mean violation" --recipe "$recipe" --steps 8 --cadences 1,2 --methods quantile,sign,none
expect 0 '"verdict": "promote"' --recipe "$recipe" --steps 16 --cadences 1 --methods quantile --tokens 4096 --json
expect 0 "not offered" --recipe "$recipe" --steps 4 --cadences 1 --methods auxiliary
expect 2 "cannot be opened" --recipe /nowhere.yaml
expect 2 "--methods" --recipe "$recipe" --methods magic
expect 2 "--cadences" --recipe "$recipe" --cadences 0
expect 2 "--steps" --recipe "$recipe" --steps 1
expect 2 "--recipe"
expect 0 "not offered" --help
expect 0 "balance_canary 0." --version

exit $((failures > 0))
