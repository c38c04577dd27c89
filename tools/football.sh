#!/usr/bin/env bash
# Build Google Research Football and install it into .venv, or into the virtual environment of $1.
#
# The package comes as source alone. It builds on Debian 12 with Python 3.11, because its engine
# needs boost-python of that very Python: 10 minutes of CPU time. As root, Debian's packages are
# installed, too; otherwise they must be there.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$(realpath "${1:-.venv}")
# What Dockerfile.actor's stages `football-wheels` and `football` install.
packages=(cmake g++ make python3-dev
  libboost-filesystem-dev libboost-python-dev libboost-system-dev libboost-thread-dev
  libglvnd-dev libsdl2-dev libsdl2-gfx-dev libsdl2-image-dev libsdl2-ttf-dev)

. /etc/os-release
if [[ ${ID:-}-${VERSION_ID:-} != debian-12 ]]; then
  echo "tools/football.sh: this is ${PRETTY_NAME:-no Debian}, and Google Research Football builds on Debian 12 alone:" \
    "build the image instead (make image-football)" >&2
  exit 1
fi
if [[ ! -x $venv/bin/python ]]; then
  echo "tools/football.sh: $venv has no bin/python: run \`make setup\` first" >&2
  exit 1
fi
"$venv/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
  echo "tools/football.sh: $venv has $("$venv/bin/python" --version), and Debian 12's boost-python is for Python 3.11" >&2
  exit 1
}
missing=$(dpkg-query --show --showformat='${db:Status-Abbrev}${Package}\n' "${packages[@]}" 2>&1 | grep -v '^ii ' || true)
if [[ -n $missing ]]; then
  if [[ $(id -u) != 0 ]]; then
    echo "tools/football.sh: Debian's packages are missing: sudo apt-get install ${packages[*]}" >&2
    exit 1
  fi
  apt-get update --quiet
  apt-get install --quiet --yes --no-install-recommends "${packages[@]}"
fi

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"$venv/bin/python" -m venv "$fresh/build"
pip=("$fresh/build/bin/python" -m pip --disable-pip-version-check)
"${pip[@]}" install --quiet --require-hashes --only-binary :all: -r requirements/football-build.lock
# The engine's script takes `python3`, with psutil, from PATH.
PATH="$fresh/build/bin:$PATH" "${pip[@]}" wheel --no-deps --no-build-isolation --require-hashes \
  --only-binary :all: --no-binary gym,gfootball --wheel-dir "$fresh/wheels" -r requirements/football.lock
"$venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps --no-index "$fresh"/wheels/*.whl
"$venv/bin/python" -c 'import gfootball.env'
echo "Google Research Football is installed in $venv."
