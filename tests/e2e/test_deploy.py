"""`seedbed deploy` on a real cluster: actors that play, and failures that name their cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.cli.main import main
from seedbed.runtime.exit_codes import ExitCode
from tests.e2e.release import ROOT, Release, values

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

CARTPOLE = str(ROOT / "experiments" / "cartpole-vtrace.yaml")


def deploy(release: Release, *more: str) -> int:
    """The exit code of `seedbed deploy` with the small pods of the other cases."""
    small: dict[str, Any] = values()
    del small["experiment"]
    file = release.folder / "small.yaml"
    file.write_text(yaml.safe_dump(small))
    options = ("--release", release.name, "-n", release.namespace, "--profile", str(file))
    return main(["deploy", CARTPOLE, *options, *more])


def test_an_image_that_is_missing_is_named(
    namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = Release("lost", namespace, tmp_path)
    assert deploy(lost, "--set", "image.tag=missing") == ExitCode.DEPLOY
    said = capsys.readouterr().err
    assert "ErrImagePull" in said or "ImagePullBackOff" in said
    assert ":missing" in said
    assert main(["check", "release", "lost", "-n", namespace]) == ExitCode.DEPLOY
    assert ":missing" in capsys.readouterr().out
    lost.uninstall()


@pytest.mark.e2e_all
def test_actors_in_the_learners_pod_play(namespace: str, tmp_path: Path) -> None:
    inside = Release("inside", namespace, tmp_path)
    assert deploy(inside, "--set", "actor.sidecar=2", "--set", "actor.replicas=0") == 0
    inside.until(lambda: inside.sessions(4), "two actors with two groups each")
    inside.uninstall()
