#!/usr/bin/env bash
# The report command from outside: files, exit codes and messages. Usage: command_test.sh REPORT
set -u
report=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect CODE TEXT ARGUMENTS...: the exit code, and a text in what is printed.
expect() {
  local code=$1 text=$2 output got
  shift 2
  output=$("$report" "$@" 2>&1)
  got=$?
  if [[ $got -ne $code || $output != *"$text"* ]]; then
    echo "FAILED: report $*: exit $got (expected $code), without \"$text\" in:"
    echo "$output"
    failures=$((failures + 1))
  fi
}

# expect_text FILE TEXT
expect_text() {
  if ! grep -qF -- "$2" "$1"; then
    echo "FAILED: $1 does not hold \"$2\""
    failures=$((failures + 1))
  fi
}

mkdir "$work/run"
{
  echo '{"type":"header","name":"small","parameters":1000,"total_steps":2}'
  echo '{"type":"step","step":1,"stage":"a","loss":5.5,"tokens":10,"tokens_per_second":100,"step_ms":100}'
  echo '{"type":"step","step":2,"stage":"a","loss":4.5,"tokens":20,"tokens_per_second":100,"step_ms":100}'
  printf '{"type":"step","step":3,"st'
} > "$work/run/metrics.jsonl"

expect 0 "2 steps" "$work/run"
expect_text "$work/run/report.html" "small"
expect 0 "1 line(s) of metrics.jsonl could not be read" "$work/run" --output "$work/page.html" --svg "$work/loss.svg" --reference "bigram entropy=2.239"
expect_text "$work/page.html" "bigram entropy 2.239"
expect_text "$work/page.html" "1 line of metrics.jsonl could not be read"
expect_text "$work/loss.svg" "bigram entropy 2.239"
expect_text "$work/loss.svg" "<style>"

expect 6 "no such directory" "$work/nothing"
expect 6 "metrics.jsonl cannot be read" "$work"
expect 6 "cannot be written" "$work/run" --output "$work/no/folder/page.html"
expect 2 "NAME=VALUE" "$work/run" --reference "bigram"
expect 2 "NAME=VALUE" "$work/run" --reference "bigram=2.2x"
expect 2 "run_dir is required"
expect 2 "--unknown" "$work/run" --unknown
expect 0 "Exit codes" --help
expect 0 "report 0." --version

exit $((failures > 0))
