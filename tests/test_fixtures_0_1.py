"""Run directories that 0.1.0 wrote open with the settings that 0.1.0 ran them with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seedbed.checkpoints.store import CheckpointStore
from seedbed.config import load_experiment, parse_experiment
from seedbed.config.keys import keys
from seedbed.config.renamed import RENAMED, renamed_value
from seedbed.runs.resume import read_stored
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

FIXTURES = Path(__file__).parent / "fixtures" / "v0_1"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
RUNS = {
    "vtrace": "vtrace",
    "r2d2": "r2d2",
    "dqn": "dqn",
    "gossip": "gossip",
    "gossip-learner-0": "gossip/learner-0",
    "gossip-learner-1": "gossip/learner-1",
}


def leaves(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return every key of a resolved experiment by its path. A free-form mapping is one value."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and not path.endswith(("kwargs", "_options")):
            found |= leaves(value, f"{path}.")
        else:
            found[path] = value
    return found


def new_path(path: str) -> str:
    for old, new in RENAMED.items():
        if path == old or path.startswith(f"{old}."):
            return new + path[len(old) :]
    return path


@pytest.mark.parametrize("name", RUNS)
def test_no_setting_of_a_stored_run_changes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    old = leaves(json.loads((FIXTURES / "experiments" / f"{name}.resolved.json").read_text()))
    text = (FIXTURES / RUNS[name] / "experiment.yaml").read_text()
    new = leaves(read_stored(text, name).model_dump(mode="json"))
    assert capsys.readouterr().err == "", "no key is unknown"
    wanted = {
        new_path(path): renamed_value(new_path(path), value) or value for path, value in old.items()
    }
    assert {path: new[path] for path in wanted} == wanted
    assert wanted.keys() <= new.keys()


@pytest.mark.parametrize("name", [name for name in RUNS if name != "gossip"])
def test_a_stored_checkpoint_opens_with_the_same_settings(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old = leaves(json.loads((FIXTURES / "experiments" / f"{name}.resolved.json").read_text()))
    store = CheckpointStore(str(FIXTURES / RUNS[name] / "checkpoints"))
    checkpoint = store.newest()
    assert checkpoint is not None
    stored = read_stored(str(checkpoint.meta["experiment"]), name)
    assert capsys.readouterr().err == ""
    new = leaves(stored.model_dump(mode="json"))
    for path, value in old.items():
        assert new[new_path(path)] == (renamed_value(new_path(path), value) or value), path


def test_an_old_key_in_a_users_file_is_refused_with_its_new_name() -> None:
    for path in ("vtrace", "r2d2", "gossip"):
        text = (FIXTURES / "experiments" / f"{path}.yaml").read_text()
        with pytest.raises(SeedbedError) as caught:
            parse_experiment(text, (), f"{path}.yaml")
        assert caught.value.code == ExitCode.CONFIG
        assert "actor.environments of 0.1 is actor.envs_per_group now" in str(caught.value)


@pytest.mark.parametrize("name", RUNS)
def test_the_file_of_a_run_directory_is_read_by_its_old_keys(name: str) -> None:
    """`seedbed train RUN_DIR/experiment.yaml --run-dir RUN_DIR`, as 0.1 itself says it."""
    file = FIXTURES / RUNS[name] / "experiment.yaml"
    stored = read_stored(file.read_text(), name)
    assert load_experiment(file) == stored
    changed = load_experiment(file, ["stop.env_frames=12345"])
    assert changed.stop.env_frames == 12345


def test_every_new_name_is_a_key() -> None:
    known = {key.path for key in keys()}
    sections = {path.rpartition(".")[0] for path in known}
    assert set(RENAMED.values()) <= known | sections
    assert not RENAMED.keys() & known
