"""Checkpoints that several runs can reach have one owner."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from seedbed.checkpoints.owner import OWNER_FILE
from seedbed.config import Experiment, parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.runs.directory import RunDirectory, open_run_directory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.spec import ArraySpec, EnvironmentSpec

SPEC = EnvironmentSpec("CartPole-v1", ArraySpec((4,), "float32"), 2, 1)


def experiment(directory: Path | str, name: str = "cartpole") -> Experiment:
    text = f"name: {name}\nenvironment: {{id: CartPole-v1}}"
    return parse_experiment(text, [f"learner.checkpoint.directory={directory}"])


def save(run: RunDirectory, updates: int) -> None:
    meta = {
        "experiment": dump_experiment(run.experiment),
        "spec": SPEC.to_json(),
        "counters": {"updates": updates},
    }
    run.store.save({"model/w": np.full(3, updates)}, meta, updates)


def resumed_updates(run: RunDirectory) -> int:
    assert run.resume_from is not None
    return run.resume_from.updates


@pytest.fixture(params=["path", "file://", "memory://"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a folder of checkpoints, as a path or a URL."""
    local = tmp_path / "shared" / "ck"
    return {"path": str(local), "file://": f"file://{local}"}.get(
        request.param, f"memory://{tmp_path.name}/ck"
    )


def test_two_runs_never_share_a_folder(tmp_path: Path, shared: str) -> None:
    settings = experiment(shared)
    with open_run_directory(tmp_path / "one", settings) as run:
        save(run, 5)
    for restart in ("resume", "fresh", "overwrite"):
        with pytest.raises(SeedbedError) as caught:
            open_run_directory(tmp_path / "two", settings, restart)  # type: ignore[arg-type]
        assert caught.value.code is ExitCode.RUN_DIRECTORY
        assert f"is the folder of the run {tmp_path / 'one'}" in str(caught.value)
        assert f"this run is {tmp_path / 'two'}" in str(caught.value)
    with open_run_directory(tmp_path / "one", settings) as run:
        assert resumed_updates(run) == 5, "nothing of it was moved"


def test_a_run_that_was_moved_or_lost_keeps_its_checkpoints(tmp_path: Path, shared: str) -> None:
    settings = experiment(shared)
    with open_run_directory(tmp_path / "one", settings) as run:
        save(run, 5)
    (tmp_path / "one").rename(tmp_path / "moved")
    with open_run_directory(tmp_path / "moved", settings) as run:
        assert resumed_updates(run) == 5
        save(run, 6)
    shutil.rmtree(tmp_path / "moved")
    with open_run_directory(tmp_path / "moved", settings) as run:
        assert resumed_updates(run) == 6


def test_a_process_whose_folder_was_taken_over_writes_no_more(tmp_path: Path, shared: str) -> None:
    """As a pod that a network has cut off, while its StatefulSet has started it elsewhere."""
    settings = experiment(shared)
    first = open_run_directory(tmp_path / "a" / "pong", settings, owner="lab/pong/pong")
    save(first, 5)
    with open_run_directory(tmp_path / "b" / "pong", settings, owner="lab/pong/pong") as second:
        assert resumed_updates(second) == 5
        save(second, 7)
        with pytest.raises(SeedbedError, match="two processes train one run") as caught:
            save(first, 6)
        assert caught.value.code is ExitCode.RUN_DIRECTORY
        assert second.store.names() == [f"checkpoint-{n:012d}.safetensors" for n in (5, 7)]
        save(second, 8)
    first.close()


def test_a_folder_that_cannot_be_read_for_a_moment_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a bucket behind a network that fails: the checkpointer tries again."""
    with open_run_directory(tmp_path / "one", experiment(tmp_path / "ck")) as run:
        save(run, 5)

        def fail(*_: object) -> bytes:
            raise OSError("the network is away")

        with monkeypatch.context() as away:
            away.setattr("seedbed.checkpoints.files.Files.read", fail)
            with pytest.raises(SeedbedError, match="the network is away") as caught:
                save(run, 6)
        assert caught.value.code is ExitCode.CHECKPOINT_READ
        save(run, 7)


def test_checkpoints_without_an_owner_are_those_of_a_run_of_the_same_name(
    tmp_path: Path, shared: str
) -> None:
    """As those of versions before owners."""
    with open_run_directory(tmp_path / "old", experiment(shared, "old")) as run:
        save(run, 5)
        run.store._files.remove(OWNER_FILE)
    with pytest.raises(SeedbedError, match="of a run with the name old, and this one's is new"):
        open_run_directory(tmp_path / "new", experiment(shared, "new"))
    with open_run_directory(tmp_path / "again", experiment(shared, "old")) as run:
        assert resumed_updates(run) == 5
    with open_run_directory(tmp_path / "again", experiment(shared, "renamed")) as run:
        assert resumed_updates(run) == 5, "the run's own folder"


def test_a_folder_above_is_adopted_once_and_from_the_same_name_alone(tmp_path: Path) -> None:
    above, own = str(tmp_path / "ck"), str(tmp_path / "ck" / "lab" / "pong" / "pong")
    with open_run_directory(tmp_path / "before", experiment(above, "pong")) as run:
        save(run, 5)
        run.store._files.remove(OWNER_FILE)

    def opened(path: str, name: str = "pong") -> RunDirectory:
        settings = experiment(own, name)
        return open_run_directory(tmp_path / path, settings, owner="lab/pong/pong", adopt=above)

    with opened("other", "breakout") as run:
        assert run.resume_from is None
    with opened("pod-1") as run:
        assert resumed_updates(run) == 5
        save(run, 9)
    with opened("pod-2") as run:
        assert resumed_updates(run) == 9


def test_two_releases_never_share_a_run_directory(tmp_path: Path) -> None:
    """As two namespaces with one bucket for run directories, or one claim and one `learner.run`."""
    settings = experiment("''")
    for _ in range(2):
        open_run_directory(tmp_path / "pong", settings, owner="lab/pong/pong").close()
    with pytest.raises(SeedbedError, match="is the folder of the run lab/pong/pong") as caught:
        open_run_directory(tmp_path / "pong", settings, owner="dev/pong/pong")
    assert caught.value.code is ExitCode.RUN_DIRECTORY
    # While its learner runs, too: a run that is in use is waited for, one of others is not.
    with open_run_directory(tmp_path / "pong", settings, owner="lab/pong/pong"):
        with pytest.raises(SeedbedError, match="is the folder of the run lab/pong/pong"):
            open_run_directory(tmp_path / "pong", settings, owner="dev/pong/pong")
        with pytest.raises(SeedbedError, match="is in use by"):
            open_run_directory(tmp_path / "pong", settings, owner="lab/pong/pong")


def test_an_owner_that_cannot_be_read_is_named(tmp_path: Path, shared: str) -> None:
    settings = experiment(shared)
    with open_run_directory(tmp_path / "one", settings) as run:
        run.store._files.write(OWNER_FILE, json.dumps(["one"]).encode())
    with pytest.raises(SeedbedError, match=f"{OWNER_FILE}, which names the run"):
        open_run_directory(tmp_path / "one", settings)
