#!/usr/bin/env bash
# The prepare command from outside: files, exit codes and messages. Usage: prepare_test.sh PREPARE
set -u
prepare=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect CODE TEXT ARGUMENTS...: the exit code, and a text in what is printed.
expect() {
  local code=$1 text=$2 output got
  shift 2
  output=$("$prepare" "$@" 2>&1)
  got=$?
  if [[ $got -ne $code || $output != *"$text"* ]]; then
    echo "FAILED: prepare $*: exit $got (expected $code), without \"$text\" in:"
    echo "$output"
    failures=$((failures + 1))
  fi
}

# expect_size FILE BYTES
expect_size() {
  if [[ $(stat -c %s "$1") != "$2" ]]; then
    echo "FAILED: $1 has $(stat -c %s "$1") bytes, expected $2"
    failures=$((failures + 1))
  fi
}

printf 'one two\n\nthree four\n\nfive six\n' > "$work/a.txt"
printf '{"text": "one"}\n{"text": "two"}\n' > "$work/a.jsonl"
printf '{"text": "one"}\n{"txt": "two"}\n' > "$work/bad.jsonl"

expect 0 "Usage" --help
expect 0 "prepare " --version
expect 0 "bigram" --input "$work/a.txt" --format text --tokenizer bytes --output "$work/text"
expect_size "$work/text.bin" 62  # 30 bytes and an end of document, two bytes each
expect_size "$work/text.idx" 62  # 34 + 12 + 2 x 8
expect 0 "corpus" --input "$work/a.txt" "$work/a.txt" --output "$work/two"
expect_size "$work/two.bin" 124
expect 0 "corpus" --input "$work/a.txt" --document-separator blank-line --output "$work/three"
expect_size "$work/three.idx" 102  # three documents
expect 0 "_validation" --input "$work/a.jsonl" --format jsonl --output "$work/split" --validation-fraction 0.5
expect_size "$work/split_train.bin" 8
expect_size "$work/split_validation.bin" 8

expect 2 "--input is required" --output "$work/x"
expect 2 "--output is required" --input "$work/a.txt"
expect 2 "--format" --input "$work/a.txt" --output "$work/x" --format xml
expect 2 "--validation-fraction" --input "$work/a.txt" --output "$work/x" --validation-fraction 0.9
expect 2 "not supported yet" --input "$work/a.txt" --output "$work/x" --tokenizer tokenizer.json
expect 2 "--unknown" --input "$work/a.txt" --output "$work/x" --unknown
expect 6 "missing.txt" --input "$work/missing.txt" --output "$work/x"
expect 6 "bad.jsonl:2:" --input "$work/bad.jsonl" --format jsonl --output "$work/x"
if compgen -G "$work/x*" > /dev/null; then
  echo "FAILED: refused runs left" "$work"/x*
  failures=$((failures + 1))
fi
exit $((failures > 0))
