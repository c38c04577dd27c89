"""What a command can refuse at once is refused before a checkpoint is read or a backend loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.cli.main import main
from seedbed.runtime.exit_codes import ExitCode


def refusal(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    code = main([str(word) for word in words])
    return code, capsys.readouterr().err.splitlines()[0]


def test_an_export_to_a_folder_with_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy/notes").touch()
    code, line = refusal(capsys, "export", tmp_path / "no-run", tmp_path / "policy")
    assert code == ExitCode.USAGE
    assert "policy is not empty, and nothing is overwritten" in line
    code, line = refusal(capsys, "export", tmp_path / "no-run", tmp_path / "policy/notes")
    assert code == ExitCode.USAGE
    assert "notes is a file" in line


def test_a_video_that_is_no_mp4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, line = refusal(capsys, "evaluate", tmp_path / "no-run", "--video", tmp_path / "cp.gif")
    assert code == ExitCode.USAGE
    assert "the name must end in .mp4" in line


@pytest.mark.parametrize("command", ["evaluate", "export"])
def test_a_file_is_no_run(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "valley.yaml").write_text("name: valley\n")
    more = [tmp_path / "policy"] * (command == "export")
    code, line = refusal(capsys, command, tmp_path / "valley.yaml", *more)
    assert code == ExitCode.CHECKPOINT_READ
    assert "valley.yaml is a file, and neither a run directory nor a .safetensors file" in line


def test_a_page_is_no_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("# Seedbed\n\nIt trains agents.\n\n- on: a: laptop\n")
    code, line = refusal(capsys, "config", "show", tmp_path / "README.md")
    assert code == ExitCode.CONFIG
    assert "README.md is no experiment: name a YAML file, or a shipped experiment" in line
    # The name of an experiment's file is free.
    (tmp_path / "mine.txt").write_text("name: mine\nenvironment: {id: CartPole-v1}\n")
    assert main(["config", "show", str(tmp_path / "mine.txt")]) == 0
