#!/usr/bin/env bash
# Generate services/wire from proto/: `make proto`. With --check, write nothing and fail where the
# committed files are not what proto/ says.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${VENV_PYTHON:-.venv/bin/python}
generate() { # OUTPUT_FOLDER
  "$python" -m grpc_tools.protoc -Iservices/wire=proto/seedbed/v1 \
    --python_out="$1" --pyi_out="$1" --grpc_python_out="$1" proto/seedbed/v1/*.proto
}

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
generate "$fresh"
cp services/wire/__init__.py "$fresh/services/wire/" # the only file there that people write
if diff -r -x __pycache__ services/wire "$fresh/services/wire" >"$fresh/difference"; then
  exit 0 # nothing to do, so that no file gets a new time
fi
if [[ ${1-} == --check ]]; then
  cat "$fresh/difference" >&2
  echo "services/wire is not what proto/ says: run 'make proto' and commit the result." >&2
  exit 1
fi
rm -f services/wire/*_pb2*
cp "$fresh"/services/wire/*_pb2* services/wire/
