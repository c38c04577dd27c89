"""Runs of one set are of one code: other code is refused, or compared apart."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from seedbed.config import load_experiment
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.sets.code import check_code, code_names, code_of, note_begin, note_lone_begin


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's module, which a setting names."""
    monkeypatch.syspath_prepend(tmp_path / "code")
    file = tmp_path / "code" / "mine_of_a_set.py"
    file.parent.mkdir()
    file.write_text("def scalars(values):\n    return {}\n")
    return file


def test_other_code_is_refused_until_a_person_takes_it(tmp_path: Path, module: Path) -> None:
    folder = tmp_path / "folder"
    mine = load_experiment("cartpole-vtrace", ["logging.scalars=mine_of_a_set:scalars"])
    plain = load_experiment("cartpole-vtrace")
    assert set(code_of([plain])) == {"seedbed"}
    assert "mine_of_a_set" not in sys.modules, "a module is read, not imported"
    check_code(folder, code_of([plain]), False)
    check_code(folder, code_of([mine]), False)  # a module that comes with more runs
    check_code(folder, code_of([plain]), False)
    note_begin(folder, "a")
    assert code_names(folder) == {}, "one code has no name"

    module.write_text("def scalars(values):\n    return {'x': 1.0}\n")
    with pytest.raises(SeedbedError) as caught:
        check_code(folder, code_of([mine]), False)
    assert caught.value.code == ExitCode.RESUME_REFUSED
    assert "mine_of_a_set: " in str(caught.value)
    assert "--other-code" in str(caught.value)
    with pytest.raises(SeedbedError):
        check_code(folder, code_of([mine]), False, is_kept=False)
    kept = (folder / "set" / "code.json").read_text()
    check_code(folder, code_of([mine]), True, is_kept=False)
    assert (folder / "set" / "code.json").read_text() == kept, "a dry run keeps nothing"
    check_code(folder, code_of([mine]), True)
    note_begin(folder, "a")
    note_begin(folder, "b")
    assert code_names(folder) == {"a": "1 of 2", "b": "2 of 2"}
    check_code(folder, code_of([mine]), False)


def test_a_run_that_no_driver_starts_has_the_code_of_its_set(tmp_path: Path, module: Path) -> None:
    mine = load_experiment("cartpole-vtrace", ["logging.scalars=mine_of_a_set:scalars"])
    note_lone_begin(tmp_path / "alone.yaml", mine)
    assert not (tmp_path / "set").exists(), "of no set"
    check_code(tmp_path, code_of([mine]), False)
    note_lone_begin(tmp_path / "a.yaml", mine)
    module.write_text("def scalars(values):\n    return {'y': 1.0}\n")
    note_lone_begin(tmp_path / "a.yaml", mine)  # which goes on
    with pytest.raises(SeedbedError, match="--other-code"):
        note_lone_begin(tmp_path / "b.yaml", mine)
    check_code(tmp_path, code_of([mine]), True)
    note_lone_begin(tmp_path / "b.yaml", mine)
    assert code_names(tmp_path) == {"a": "1 of 2", "b": "2 of 2"}


def test_an_environment_of_ours_is_no_module(tmp_path: Path) -> None:
    atari = load_experiment("pong-vtrace")
    assert atari.environment.id == "atari:Pong"
    assert set(code_of([atari])) == {"seedbed"}


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "code.json").write_text("{")
    with pytest.raises(SeedbedError, match=r"code\.json cannot be read"):
        check_code(tmp_path, {"seedbed": "x"}, False)
