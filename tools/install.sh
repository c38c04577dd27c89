#!/usr/bin/env bash
# Install a lock for a Python: `tools/install.sh PYTHON LOCK`. uv takes a tenth of pip's time. pip
# takes over where uv fails, such as with an index that only pip's settings name.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 lock=$2
locked=(--quiet --require-hashes --only-binary ':all:')
pip=("$python" -m pip --disable-pip-version-check install "${locked[@]}")

if "${pip[@]}" -r requirements/installer.lock &&
  "$python" -m uv --quiet pip install --python "$python" "${locked[@]}" -r "$lock"; then
  exit
fi
echo "uv has not installed $lock: pip does" >&2
"${pip[@]}" -r "$lock"
