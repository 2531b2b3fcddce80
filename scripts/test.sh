#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that this machine can run. The last line is CTest's summary.
# Arguments go to ctest:  scripts/test.sh -R arena     scripts/test.sh -L mpi     scripts/test.sh --rerun-failed
# Exit code: 0 when all tests passed.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
scripts/dev build

output=$(mktemp)
trap 'rm -f "$output"' EXIT
status=0
ctest --test-dir build -j "$(nproc)" --output-on-failure "$@" 2>&1 | tee "$output" || status=$?
# CTest writes the times of labels and the list of failures after its summary; the summary is repeated to be the last line.
grep -E '^[0-9]+% tests passed|^No tests were found' "$output" | tail -n 1 || true
exit "$status"
