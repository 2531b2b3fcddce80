#!/usr/bin/env bash
# Builds the kernels with the CUDA backend on a machine with a GPU, runs their GPU tests, and prints how far each result is
# from the CPU's. Needs nvcc, CMake, a C++20 compiler, fmt, OpenBLAS and Catch2 only.
#
#   tools/bench/device_check.sh [--prefix DIR] [--build DIR] [--jobs N] [--sanitize TOOL] [FILTER]
#
# --prefix: where libraries are installed that the system lacks (a second usr/). --sanitize memcheck|racecheck runs the tests
# under compute-sanitizer. FILTER: Catch2's test names or tags, by default [cuda].
# Exit code: 0 when everything was built and all tests passed.
set -euo pipefail
cd "$(dirname "$0")/../.."

prefix='' build=build-device jobs=$(nproc) sanitize='' filter='[cuda]'
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=$(realpath "$2"); shift 2 ;;
    --build) build=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    --sanitize) sanitize=$2; shift 2 ;;
    *) filter=$1; shift ;;
  esac
done

configure=(-S . -B "$build" -DLONGHAUL_CUDA=ON -DLONGHAUL_KERNELS_ONLY=ON -DCMAKE_CUDA_ARCHITECTURES=90a-real)
command -v ninja >/dev/null && configure+=(-G Ninja)
if [ -n "$prefix" ]; then
  export PKG_CONFIG_PATH=$prefix/lib/pkgconfig:${PKG_CONFIG_PATH:-} LD_LIBRARY_PATH=$prefix/lib:${LD_LIBRARY_PATH:-}
  configure+=("-DCMAKE_PREFIX_PATH=$prefix")
fi

started=$SECONDS
if ! cmake "${configure[@]}" >"$build.configure.log" 2>&1; then
  tail -n 30 "$build.configure.log"
  exit 1
fi
mapfile -t tests < <(grep -rlE '\[cuda\]' kernels/*/*_test.cpp lib/device/*_test.cpp | sed -E 's|kernels/([^/]*)/.*|kernel_\1_test|; s|lib/([^/]*)/.*|\1_test|' | sort -u)
if ! cmake --build "$build" -j "$jobs" --target "${tests[@]}" -- -k0 >"$build.build.log" 2>&1; then
  grep -E -A4 'error|FAILED|undefined' "$build.build.log" | cut -c1-300 | head -n 150
  echo "build failed after $((SECONDS - started)) s; what was built is tested below"
fi
echo "built in $((SECONDS - started)) s"

started=$SECONDS
failed=() passed=()
for test in "${tests[@]}"; do
  [ -x "$build/tests/$test" ] || { failed+=("$test (not built)"); continue; }
  run=("$build/tests/$test" "$filter")
  [ -n "$sanitize" ] && run=(compute-sanitizer --tool "$sanitize" --error-exitcode 99 "${run[@]}")
  status=0
  OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 timeout 200 "${run[@]}" >"$build/$test.log" 2>&1 || status=$?
  case $status in
    0) passed+=("$test") ;;
    2) grep -q 'No test cases matched' "$build/$test.log" || failed+=("$test ($status)") ;;
    4) echo "$test: skipped" ;;
    *) failed+=("$test ($status)") ;;
  esac
done
echo "tested in $((SECONDS - started)) s"
for test in "${failed[@]:-}"; do
  log=$build/${test%% *}.log
  [ -f "$log" ] && grep -vE '^parity' "$log" | grep -vE '^$' | head -n 40
done
echo "--- largest relative L2 difference from the CPU"
cat "$build"/*_test.log 2>/dev/null | awk '/^parity/ {
    op = $2; name = $(NF - 2); type = $(NF - 1); value = $NF; key = op "." name
    if (!(key in order)) { order[key] = ++n; keys[n] = key }
    known = (key, type) in worst
    if (known && worst[key, type] == "DIFFERENT") next
    if (!known || value == "DIFFERENT" || value + 0 > worst[key, type] + 0) worst[key, type] = value
  }
  END { for (i = 1; i <= n; ++i) printf "%-36s f32 %-9s bf16 %-9s\n", keys[i], worst[keys[i], "f32"], worst[keys[i], "bf16"] }'
echo "--- ${#passed[@]} test programs passed, ${#failed[@]} failed: ${failed[*]:-}"
[ ${#failed[@]} -eq 0 ]
