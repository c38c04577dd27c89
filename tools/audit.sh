#!/usr/bin/env bash
# Look up the known vulnerabilities of every lock: `make audit`. Exit code 1 where one has some, or where
# the public list of them does not answer. Nothing of the locks is installed but pip-audit's own.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build/audit
"$(tools/find_python.sh)" -m venv "$venv"
requirements/install.sh "$venv/bin/python" requirements/audit.lock
result=0
for lock in requirements/*.lock; do
  echo "-- $lock"
  "$venv/bin/pip-audit" --strict --require-hashes --disable-pip --progress-spinner off -r "$lock" "$@" || result=1
done
exit "$result"
