"""Experiments of the package are found by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.config import load_experiment
from seedbed.config.shipped import shipped_experiments
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

ROOT = Path(__file__).parents[2]


def test_each_experiment_of_the_tree_is_shipped_under_its_name() -> None:
    files = sorted((ROOT / "experiments").glob("*.yaml"))
    assert list(shipped_experiments()) == [file.stem for file in files]
    for file in files:
        assert load_experiment(file.stem) == load_experiment(file)


def test_overrides_work_with_names() -> None:
    assert load_experiment("cartpole-vtrace", ["seed=7"]).seed == 7


def test_a_file_comes_before_a_shipped_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cartpole-vtrace").mkdir()  # a folder is no experiment
    assert load_experiment("cartpole-vtrace").name == "cartpole-vtrace"
    (tmp_path / "cartpole-dqn").write_text("name: mine\nenvironment: {id: CartPole-v1}")
    assert load_experiment("cartpole-dqn").name == "mine"


def test_an_unknown_name_is_refused_with_the_nearest_ones() -> None:
    with pytest.raises(SeedbedError, match="one of cartpole-vtrace") as caught:
        load_experiment("cartpole-vtrac")
    assert caught.value.code == ExitCode.CONFIG
    with pytest.raises(SeedbedError, match=r"cannot read the experiment cartpole-vtrac\.yaml"):
        load_experiment("cartpole-vtrac.yaml")
