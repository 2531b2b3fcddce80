#!/bin/sh
# What a job does when a rank fails: exit codes as in the command line's contract, and who prints what.
# Usage: rank_faults_test.sh MPIEXEC NUMPROC_FLAG PROGRAM
mpiexec=$1
flag=$2
program=$3
failures=0

# expect NAME EXIT_CODE COMMAND...: runs it; its output is in $output.
expect() {
  name=$1
  wanted=$2
  shift 2
  output=$("$@" 2>&1)
  got=$?
  if [ "$got" -ne "$wanted" ]; then
    echo "$name: exit code $got, wanted $wanted; output:"
    echo "$output"
    failures=$((failures + 1))
  fi
}
# prints TIMES TEXT: the output must hold the text on that many lines.
prints() {
  got=$(echo "$output" | grep -c -F -- "$2")
  if [ "$got" -ne "$1" ]; then
    echo "$name: '$2' was printed $got times, wanted $1; output:"
    echo "$output"
    failures=$((failures + 1))
  fi
}

expect "an error of one rank ends the job with its exit code" 6 "$mpiexec" "$flag" 2 "$program" alone
prints 1 "shard 3 is cut off"

expect "an agreed error ends all ranks with its exit code" 6 "$mpiexec" "$flag" 3 "$program" agreed
prints 1 "[rank 1 $(uname -n)] shard 3 is cut off"  # once, though agreeing names the rank too

expect "a hang ends with the watchdog's exit code" 124 "$mpiexec" "$flag" 2 "$program" hang
prints 1 "in phase 'load data'"
prints 1 "in phase 'dispatch'"
prints 1 "all_reduce_sum expert#1 16 bytes (running)"

expect "four ranks that do not know of each other are refused" 2 env SLURM_NTASKS=4 SLURM_PROCID=2 "$program" agreed
prints 1 "srun --mpi=pmix"
prints 0 "started"

exit "$failures"
