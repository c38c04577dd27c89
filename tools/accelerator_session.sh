#!/usr/bin/env bash
# Measure the first hour on an accelerator in slices, where a machine is lent for minutes at a time.
#
#     tools/accelerator_session.sh FILE.json [PART ...] [--minutes 60] [more of `seedbed bench accelerator`]
#
# Each slice is one call of at most SLICE_S (480) seconds, which resumes where the one before was cut
# off. SLICES (all) is how many to run now: with SLICES=1 the command ends after one slice, with exit
# code 75 if there is more to do. The same command again resumes.
set -euo pipefail

[[ $# -ge 1 && $1 != -* ]] || { sed -n '2,9p' "$0" >&2; exit 2; }
file=$(realpath -m "$1")
shift
slice_s=${SLICE_S:-480} slices=${SLICES:-0}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
[[ -x $python ]] || python=python3

measured() { [[ -f $file ]] && cksum <<<"$(tr -d ' ' <"$file" | grep -v '"\(spent_s\|time\)"')" || echo none; }

for ((slice = 1; ; slice++)); do
  before=$(measured) code=0
  # SIGTERM lets it write and end its processes; 60 s later nothing is waited for.
  timeout --kill-after 60 "$slice_s" "$python" -m seedbed.cli.main bench accelerator \
    "$@" --json "$file" || code=$?
  [[ $code -eq 124 || $code -eq 137 ]] || exit "$code"
  if [[ $(measured) == "$before" ]]; then
    echo "slice $slice measured nothing in $slice_s s: the next case takes longer; set SLICE_S" >&2
    exit 1
  fi
  echo "slice $slice is over; what it measured is in $file" >&2
  [[ $slices -eq 0 || $slice -lt $slices ]] || exit 75
done
