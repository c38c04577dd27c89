"""The result of a release comes to this machine: while it runs, in a pause, and after the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbed.cli.main import main
from seedbed.runs.stored import read_checkpoint
from tests.e2e.release import Release, values

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]


class Home:
    """The folder here."""

    def __init__(self, release: Release, folder: Path) -> None:
        self.release, self.folder = release, folder

    def fetch(self) -> dict[str, Any]:
        """Fetch, and return the counters of the run that is here now."""
        name, namespace = self.release.name, self.release.namespace
        assert main(["fetch", name, str(self.folder), "-n", namespace]) == 0
        status = json.loads((self.folder / "status.json").read_text())
        return dict(status["counters"])

    def frames_of_policy(self) -> int:
        """Frames of the newest checkpoint that is here."""
        return int(read_checkpoint(self.folder).meta["counters"]["env_frames"])


def at_zero(release: Release) -> bool:
    return not release.pods("learner") and not release.pods("actor")


def row(release: Release, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["list", "--json", "-n", release.namespace]) == 0
    rows = json.loads(capsys.readouterr().out)
    (found,) = (each for each in rows if each["run"] == f"{release.namespace}/{release.name}")
    return dict(found)


def test_the_result_comes_home(
    namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pong = Release("pong", namespace, tmp_path)
    notes = pong.install(values())
    assert f"seedbed fetch pong DIR -n {namespace}" in notes
    pong.trains()
    pong.until(pong.saved_frames, "there is a checkpoint")
    home = Home(pong, tmp_path / "result")
    running = home.fetch()["env_frames"]
    assert running > 0
    assert "reads it meanwhile" not in capsys.readouterr().err, "the learner's pod has the claim"
    assert home.frames_of_policy() > 0

    assert main(["pause", "pong", "-n", namespace]) == 0
    pong.until(lambda: at_zero(pong), "the pause has taken it to zero")
    paused = home.fetch()["env_frames"]
    assert paused > running
    assert "reads it meanwhile" in capsys.readouterr().err
    assert home.frames_of_policy() > running
    assert row(pong, capsys)["state"] == "paused"

    # A bucket would do; here is none, and the volume outlives the learner.
    upload = {"learner": {"upload": "file:///runs/uploads"}}
    stop = {"stop": {"env_frames": paused + 1}, "evaluation": {"episodes": 1}}
    pong.upgrade(values(experiment=stop | upload))
    assert main(["resume", "pong", "-n", namespace]) == 0
    pong.until(lambda: pong.state().get("finished"), "it is finished")
    pong.until(lambda: at_zero(pong), "the end has taken it to zero")
    assert home.fetch()["env_frames"] > paused
    summary = json.loads((home.folder / "summary.json").read_text())
    assert home.frames_of_policy() == summary["env_frames"]
    uploaded = json.loads((home.folder / "uploaded.json").read_text())
    assert uploaded["url"] == f"file:///runs/uploads/{namespace}/pong/pong"
    for command in ("status", "plot", "evaluate"):
        assert main([command, str(home.folder), *["--episodes=1"] * (command == "evaluate")]) == 0
    shown = row(pong, capsys)
    assert (shown["state"], shown["env_frames"]) == ("finished", summary["env_frames"])
    assert shown["dollars"] > 0
    # Nothing of the transfers is left.
    pong.until(lambda: not pong.pods("fetch"), "no pod of a fetch")
    pong.uninstall()
