#!/usr/bin/env bash
# Generate docs/configuration.md from the schema: `make docs`. With --check, write nothing and fail
# where the committed file is not what the schema says.
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT
.venv/bin/seedbed config reference >"$fresh"
if [[ ${1-} != --check ]]; then
  cp "$fresh" docs/configuration.md
elif ! diff docs/configuration.md "$fresh" >&2; then
  echo "docs/configuration.md is not what the schema says: run 'make docs' and commit it." >&2
  exit 1
fi
