#!/usr/bin/env bash
# Installs everything that building, testing and the quickstart need. The one place that installs anything.
# Works on Debian 12 and Ubuntu 24.04, as root or through sudo; does nothing when all is there.
# CUDA is used where it is found (nvcc on PATH or /usr/local/cuda) and never installed here.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '[setup] %s\n' "$*" >&2; }
die() { printf '[setup] error: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then env DEBIAN_FRONTEND=noninteractive "$@"; return; fi
  command -v sudo >/dev/null || die "packages are missing and neither root nor sudo is available; install: ${missing[*]}"
  sudo env DEBIAN_FRONTEND=noninteractive "$@"
}

is_installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

# Debian 12 carries Catch2 v3 in its backports only. The suite is derived from the entry that apt already uses for
# Debian itself, so a mirror configured by the administrator keeps being used.
add_backports() {
  local uri
  grep -rqs 'bookworm-backports' /etc/apt/sources.list /etc/apt/sources.list.d && return 0
  uri=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 2>/dev/null | awk '$2=="bookworm"{print $1; exit}')
  [ -n "$uri" ] || die "cannot find the Debian bookworm source in apt's configuration; add bookworm-backports by hand"
  say "adding bookworm-backports for Catch2 v3"
  printf 'deb %s bookworm-backports main\n' "$uri" | as_root tee /etc/apt/sources.list.d/longhaul-backports.list >/dev/null
  as_root apt-get update -qq
}

[ -r /etc/os-release ] || die "this script knows Debian 12 and Ubuntu 24.04 only"
. /etc/os-release

packages=(
  g++ cmake ninja-build pkg-config ccache git ca-certificates
  openmpi-bin libopenmpi-dev libhdf5-dev hdf5-tools libopenblas-openmp-dev
  libyaml-cpp-dev libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libzstd-dev libbenchmark-dev
  python3 python3-numpy python3-h5py bible-kjv
)

missing=()
for package in "${packages[@]}"; do is_installed "$package" || missing+=("$package"); done
if [ ${#missing[@]} -gt 0 ]; then
  say "installing: ${missing[*]}"
  as_root apt-get update -qq
  as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

catch2_is_v3() { dpkg-query -W -f='${Version}' catch2 2>/dev/null | grep -q '^3' || is_installed libcatch2-dev; }
if ! catch2_is_v3; then
  missing=(Catch2 v3)
  if [ "${VERSION_CODENAME:-}" = bookworm ]; then
    add_backports
    as_root apt-get install -y -qq --no-install-recommends -t bookworm-backports libcatch2-dev >/dev/null
  else
    as_root apt-get install -y -qq --no-install-recommends catch2 >/dev/null
  fi
fi
say "everything is installed"
