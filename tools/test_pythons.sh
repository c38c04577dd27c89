#!/usr/bin/env bash
# Try Seedbed on the Pythons that `make test` does not run: the wheel trains, plots, evaluates and
# exports, and the quick tests pass. 3.12 has the locked TensorFlow, 3.13 the newest JAX alone.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD work=$PWD/build/pythons uv=$PWD/.venv/bin/uv

quick=(tests/config tests/ops tests/runs tests/telemetry tests/checkpoints)
# The other locks are parts of these (tests/test_locks.py), or for Python 3.11 alone.
whole=(dev docs learner-tensorflow-gpu learner-jax-gpu learner-jax-tpu)
locked=(--require-hashes --only-binary ':all:')

say() { echo "-- $*, $SECONDS s"; }

try_python() { # VERSION LOCK BACKEND TESTS...
  local python venv=$work/$1
  python=$("$root/tools/find_python.sh" "$1")
  say "Python $1: the locks have their wheels"
  for lock in "${whole[@]}"; do
    "$uv" pip install --quiet --dry-run --python "$python" "${locked[@]}" -r "requirements/$lock.lock"
  done
  say "Python $1: install the wheel and $2"
  "$python" -m venv "$venv"
  "$root/requirements/install.sh" "$venv/bin/python" "$2"
  "$uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-index "$work"/*.whl
  (
    cd "$venv" # not the checkout, so that the wheel is what is imported
    export PATH=$venv/bin:$PATH
    unset PYTHONPATH
    say "Python $1: train, plot, evaluate, export"
    # Half a minute. The backend is not named: the default is the one that is installed.
    seedbed train cartpole-vtrace --set stop.env_frames=60000 --set evaluation.at_end=false
    grep -q "^  backend: $3$" runs/cartpole-vtrace/experiment.yaml
    seedbed plot runs/cartpole-vtrace --out curve.png
    test -s curve.png
    seedbed evaluate runs/cartpole-vtrace --episodes 2
    seedbed export runs/cartpole-vtrace policy
    KERAS_BACKEND=$3 python -c 'import keras; keras.saving.load_model("policy/policy.keras")'
  )
  say "Python $1: quick tests"
  SEEDBED_TEST_BACKEND=$3 PATH=$venv/bin:$PATH \
    "$venv/bin/python" -m pytest -q -n 2 --dist loadfile "${@:4}"
}

rm -rf "$work"
mkdir -p "$work"
git -c safe.directory='*' checkout-index --all --prefix="$work/tree/"
.venv/bin/python -m build --no-isolation --wheel --outdir "$work" "$work/tree" >"$work/build.log"
try_python 3.12 requirements/dev.lock tensorflow "${quick[@]}"
try_python 3.13 requirements/jax-newest.lock jax "${quick[@]}" tests/networks
