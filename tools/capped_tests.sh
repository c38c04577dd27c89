#!/usr/bin/env bash
# The tests of precision, backends and invariants on the instruction sets of older processors, so that one machine stands
# for several: `tools/capped_tests.sh [options of pytest]`. A cap above what this processor has changes nothing.
set -uo pipefail
cd "$(dirname "$0")/.."

tests=(tests/networks/test_precision.py tests/backends tests/services/learner/test_master_invariant*.py)
failed=()

# part BACKEND VARIABLE=VALUE [options of pytest]: one run under one cap.
part() {
  local cap=$2
  echo "== $1, $cap"
  env "SEEDBED_TEST_BACKEND=$1" "$cap" .venv/bin/python -m pytest -q -n 2 "${@:3}" "${tests[@]}" || failed+=("$1, $cap")
}

for isa in SSE41 AVX2 AVX512_CORE AVX512_CORE_BF16; do
  part tensorflow "ONEDNN_MAX_CPU_ISA=$isa" "$@"
done
part tensorflow TF_ENABLE_ONEDNN_OPTS=0 "$@"
for isa in SSE4_2 AVX2 AVX512; do
  part jax "XLA_FLAGS=--xla_cpu_max_isa=$isa" -m 'backends and not slow' "$@"
done

if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
