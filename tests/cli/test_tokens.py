"""`seedbed tokens DIR`: files that fit together."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.cli.main import main
from seedbed.rpc.credentials import MAY_CALL, Credentials
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.tokens import Role, Tokens

SERVER_OF = {"Inference": Role.LEARNER, "Gossip": Role.LEARNER, "Replay": Role.SHARD}


def test_each_process_is_served_with_its_file_and_learns_no_other_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "made"
    assert main(["tokens", str(folder)]) == 0
    assert capsys.readouterr().out.split() == [str(folder / role) for role in Role]
    files = {role: Tokens(folder / role) for role in Role}
    for method, allowed in MAY_CALL.items():
        server = SERVER_OF[method.split(".")[-1].split("/")[0]]
        judge = Credentials(server, files[server])
        for role in Role:
            denial = judge.denial(method, Credentials(role, files[role]).metadata(), {})
            assert (denial is None) == (role in allowed), (method, role, denial)
    for role in Role:
        assert (folder / role).stat().st_mode & 0o077 == 0
        text = (folder / role).read_text()
        for other in set(Role) - {role}:
            assert files[other].secret(other) not in text


def test_existing_tokens_are_never_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokens", str(tmp_path)]) == 0
    before = (tmp_path / "learner").read_text()
    (tmp_path / "actor").unlink()
    assert main(["tokens", str(tmp_path)]) == ExitCode.USAGE
    assert "token files of learner, shard, observer already" in capsys.readouterr().err
    assert (tmp_path / "learner").read_text() == before
    assert not (tmp_path / "actor").exists()


def test_secrets_go_to_a_folder_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").touch()
    assert main(["tokens", str(tmp_path)]) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert "has other files (mine.py)" in told
    assert f"name a new one, such as {tmp_path / 'tokens'}" in told
    assert [file.name for file in tmp_path.iterdir()] == ["mine.py"]


def test_a_person_is_told_that_they_are_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokens", str(tmp_path / "alone")]) == 0
    out, told = capsys.readouterr()
    assert len(out.splitlines()) == len(Role), "a script reads the paths"
    assert "these are secrets" in told
    assert "git" not in told
    (tmp_path / "code/.git").mkdir(parents=True)
    assert main(["tokens", str(tmp_path / "code/tokens")]) == 0
    assert f"it lies in the work tree {tmp_path / 'code'}" in capsys.readouterr().err
