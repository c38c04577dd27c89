#!/usr/bin/env bash
# Generate what is made from code: `make docs`. With --check, write nothing and fail where a
# committed file is not what the code says.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD

python=.venv/bin/python
fresh=$(mktemp)
trap 'rm -f "$fresh"' EXIT

page() { # FILE MODULE ARGUMENT...
  local file=$1
  shift
  "$python" -m "$@" >"$fresh"
  if [[ $check == 0 ]]; then
    cp "$fresh" "$file"
  elif ! diff "$file" "$fresh" >&2; then
    echo "$file is not what the code says: run 'make docs' and commit it." >&2
    exit 1
  fi
}

check=0
[[ ${1-} == --check ]] && check=1
page docs/configuration.md seedbed.cli.main config reference
page docs/exit-codes.md tools.exit_codes_reference
page docs/metrics.md tools.metrics_reference
for program in tools/chart_values.py tools/chart_set_values.py tools/dashboard.py; do
  "$python" "$program" "$@"
done
