#!/usr/bin/env bash
# Several GPUs of one host: equal layouts, endurance under imbalance, weak scaling, a killed rank. Prints the tables of the README.
# See multi_gpu.py --help; everything is passed on.
set -euo pipefail
exec python3 "$(dirname "$0")/multi_gpu.py" "$@"
