#!/usr/bin/env bash
# The tests of precision, backends and invariants on the instruction sets of older processors, so that one machine stands
# for several: `tools/capped_tests.sh [options of pytest]`. Caps that this processor does not exceed are left out.
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

# has FLAG: whether this processor has it.
has() { grep -qm1 "^flags.* $1\b" /proc/cpuinfo; }

onednn=(SSE41) xla=(SSE4_2)
if has avx512f; then
  onednn+=(AVX2) xla+=(AVX2)
fi
if has avx512_bf16; then
  onednn+=(AVX512_CORE) xla+=(AVX512)
fi
for isa in "${onednn[@]}"; do
  part tensorflow "ONEDNN_MAX_CPU_ISA=$isa" "$@"
done
part tensorflow TF_ENABLE_ONEDNN_OPTS=0 "$@"
for isa in "${xla[@]}"; do
  part jax "XLA_FLAGS=--xla_cpu_max_isa=$isa" -m 'backends and not slow' "$@"
done

if ((${#failed[@]})); then
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
