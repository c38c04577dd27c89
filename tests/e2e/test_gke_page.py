"""docs/gke.md, line by line, on the cluster that is there: `make gke-doc`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.release import LONG_S, ROOT, Release, command, new_namespace, values
from tests.support.gke_page import is_run, lines, on_any_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_all, pytest.mark.timeout(3000)]

# The page is of the namespace `default`, which a test leaves alone.
SEEDBED = """#!/bin/sh
case $1 in
deploy | fetch | list | logs | pause | resume) set -- "$@" --namespace {namespace} ;;
esac
exec {python} -m seedbed.cli.main "$@"
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    with new_namespace("page") as name:
        yield name


def test_each_line_works_as_it_is_written(namespace: str, tmp_path: Path) -> None:
    release = Release("cartpole-vtrace", namespace, tmp_path)
    small = values(experiment={"stop": {"env_frames": 100_000}})
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(small))
    program = tmp_path / "bin" / "seedbed"
    program.parent.mkdir()
    program.write_text(SEEDBED.format(namespace=namespace, python=sys.executable))
    program.chmod(0o755)
    config = tmp_path / "kubeconfig"
    config.write_text(command("kubectl", "config", "view", "--raw", "--minify", "--flatten"))
    path = os.pathsep.join((str(program.parent), os.environ["PATH"]))
    environment = {**os.environ, "KUBECONFIG": str(config), "PATH": path, "PYTHONPATH": str(ROOT)}
    context = ("config", "set-context", "--current", f"--namespace={namespace}")
    command("kubectl", f"--kubeconfig={config}", *context)
    exports = ["set -e"]
    for line in (on_any_cluster(line) for line in lines() if is_run(line)):
        if line.startswith("export "):
            exports.append(line)
            continue
        done = subprocess.run(
            ["bash", "-c", "\n".join([*exports, line])],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=2 * LONG_S,
        )  # fmt: skip
        where = f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert done.returncode == 0, f"{where}\n{release.describe()}"
        print(f"$ {line}\n{done.stdout[-400:]}{done.stderr[-400:]}", file=sys.stderr)
    run = tmp_path / "runs" / "cartpole"
    assert (run / "curve.png").stat().st_size
    assert (run / "checkpoints" / "best.safetensors").stat().st_size
    assert not release.get("pvc")["items"]
