#!/usr/bin/env bash
# Write requirements/*.lock from pyproject.toml: `make lock`, or `make lock UPGRADE=1`.
#
# dev.lock is the universe: everything at once. The others are parts of it, with its versions, so
# that what was tested is what an image holds. Without UPGRADE=1, versions stay where they are.
# Each lock holds for Python 3.11, 3.12 and 3.13, but for those of DeepMind Lab and Football (3.11),
# and jax-newest.lock (3.13), which is no part of dev.lock.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=${UV:-.venv/bin/uv}
compile=("$uv" pip compile pyproject.toml --quiet
  --python-platform x86_64-manylinux_2_31
  --only-binary :all: --generate-hashes
  --annotation-style line --no-header)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Write a lock for the first Python of VERSIONS. It holds for the others if they resolve to the same.
lock() { # NAME EXTRA... [-- OPTION...]
  local name=$1 versions=${VERSIONS:-3.11 3.12 3.13} arguments=()
  local file=requirements/$name.lock copy=$scratch/$name.lock upgrade=()
  if [[ -n ${UPGRADE-} && $name =~ ^(dev|jax-newest)$ ]]; then upgrade=(--upgrade); fi
  shift
  while [[ $# -gt 0 && $1 != -- ]]; do
    arguments+=(--extra "$1")
    shift
  done
  [[ $# -gt 0 ]] && shift
  "${compile[@]}" --python-version "${versions%% *}" "${upgrade[@]}" "${arguments[@]}" "$@" \
    --output-file "$file"
  for version in ${versions#* }; do
    cp "$file" "$copy"
    "${compile[@]}" --python-version "$version" "${arguments[@]}" "$@" --output-file "$copy"
    if ! diff <(grep -v '^ *#' "$file") <(grep -v '^ *#' "$copy") >&2; then
      echo "$file does not hold for Python $version: bound what differs in pyproject.toml, so that" \
        "one version has wheels for all" >&2
      return 1
    fi
  done
  echo "$file: $(grep -c '^[a-z]' "$file") packages"
}

lock dev actor vizdoom tensorflow jax kubernetes gcs plots compare video build dev
for part in "run actor tensorflow plots compare video build" \
  "run-gpu actor tensorflow-cuda plots compare video build" "run-tpu actor jax-tpu plots compare video build" "build build" "actor actor" "vizdoom vizdoom" "cost kubernetes" \
  "learner-tensorflow tensorflow gcs" "learner-jax jax gcs" \
  "learner-tensorflow-gpu tensorflow-cuda gcs" "learner-jax-gpu jax-cuda gcs" \
  "learner-jax-tpu jax-tpu gcs"; do
  # shellcheck disable=SC2086  # a name and its extras
  lock $part -- --constraint requirements/dev.lock
done
# The installer alone, which installs all others (requirements/install.sh).
sed -n '/^uv==/,/^ *# via/p' requirements/dev.lock | grep -v '#' >requirements/installer.lock
lock docs docs -- --constraint requirements/dev.lock
# DeepMind Lab wants an older setuptools than what builds this package.
VERSIONS=3.11 lock lab lab -- --constraint requirements/actor.lock
# The newest of everything, for the test of the newest JAX.
VERSIONS=3.13 lock jax-newest jax plots compare video test

# What no extra of the package has: pip-audit, and Football's packages, which come as source.
named() { # NAME OPTION...
  "$uv" pip compile "requirements/$1.in" --quiet --python-version 3.11 \
    --python-platform x86_64-manylinux_2_31 --only-binary :all: "${@:2}" --generate-hashes \
    --annotation-style line --no-header --output-file "requirements/$1.lock"
}
named audit
named football-build
# gym-notices does nothing but print that gym is unmaintained, in each process.
named football --no-binary gym --no-emit-package gym-notices --constraint requirements/dev.lock
# Not compiled with the others, because reading its metadata takes what football-build.lock holds.
cat >>requirements/football.lock <<'LOCK'
gfootball==2.10.2 \
    --hash=sha256:1b0fdcfa78b7fadc3730585ee7f0f412ba825c27e422b2b85ea0cf7ba57800b6
LOCK
