#!/usr/bin/env bash
# Install a lock: `requirements/install.sh PYTHON LOCK`. uv takes a tenth of pip's time; pip takes
# over where uv fails. INSTALLER is the Python that has pip and gets uv: PYTHON, unless it is set.
# Bytecode is compiled here: without it an import of TensorFlow takes 10 s longer, in each process
# where PYTHONDONTWRITEBYTECODE is set or the environment is read-only.
set -euo pipefail
folder=$(dirname "$0") python=$1 lock=$2
installer=${INSTALLER:-$python}
locked=(--quiet --require-hashes --only-binary ':all:')
pip=("$installer" -m pip --disable-pip-version-check)

# uv reads none of pip's settings. Those of the environment come first in pip's list. A dot is any
# character.
settings=$("${pip[@]}" config list)
setting() { sed -nE "s/^(:env:|global)\\.$1='(.*)'$/\\2/p;T;q" <<<"$settings"; }
index=${UV_DEFAULT_INDEX:-$(setting index.url)} certificates=${SSL_CERT_FILE:-$(setting cert)}
if [[ -n $index ]]; then export UV_DEFAULT_INDEX=$index; fi
if [[ -n $certificates ]]; then export SSL_CERT_FILE=$certificates; fi

if "${pip[@]}" install "${locked[@]}" -r "$folder/installer.lock" &&
  "$installer" -m uv --quiet pip install --compile-bytecode --python "$python" "${locked[@]}" -r "$lock"; then
  exit
fi
echo "uv has not installed $lock: pip does" >&2
"${pip[@]}" --python "$python" install "${locked[@]}" -r "$lock"
