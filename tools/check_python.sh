#!/usr/bin/env bash
# Say what is missing before a virtual environment can be made: `make` runs it with PYTHON.
set -euo pipefail
python=$1

if ! command -v "$python" >/dev/null; then
  echo "Seedbed needs Python 3.11, and there is no '$python' here. Install it (Debian 12: apt-get" \
    "install python3.11 python3.11-venv), or name another one: make PYTHON=/path/to/python3.11 ..." >&2
  exit 1
fi
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
  version='no Python'
if [[ $version != 3.11 ]]; then
  echo "Seedbed needs Python 3.11, and '$python' is $version: requirements/*.lock are" \
    "for 3.11. Name another one: make PYTHON=/path/to/python3.11 ..." >&2
  exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  echo "'$python' cannot make virtual environments. Install its venv package (Debian 12: apt-get" \
    "install python3.11-venv)." >&2
  exit 1
fi
