#!/usr/bin/env bash
# Generate seedbed/v1 from proto/: `make proto`. With --check, write nothing and fail where the
# committed files are not what proto/ says.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${VENV_PYTHON:-.venv/bin/python}
generate() { # OUTPUT_FOLDER
  "$python" -m grpc_tools.protoc -Iproto \
    --python_out="$1" --pyi_out="$1" --grpc_python_out="$1" proto/seedbed/v1/*.proto
}

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
generate "$fresh"
cp seedbed/v1/__init__.py "$fresh/seedbed/v1/" # the only file there that people write
if diff -r -x __pycache__ seedbed/v1 "$fresh/seedbed/v1" >"$fresh/difference"; then
  exit 0 # nothing to do, so that no file gets a new time
fi
if [[ ${1-} == --check ]]; then
  cat "$fresh/difference" >&2
  echo "seedbed/v1 is not what proto/ says: run 'make proto' and commit the result." >&2
  exit 1
fi
rm -f seedbed/v1/*_pb2*
cp "$fresh"/seedbed/v1/*_pb2* seedbed/v1/
