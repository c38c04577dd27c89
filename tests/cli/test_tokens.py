"""`seedbed tokens DIR`: files that fit together."""

from __future__ import annotations

from pathlib import Path

import pytest

from seedbed.cli.main import main
from seedbed.rpc.credentials import MAY_CALL, Credentials, Denial
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
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
            caller = judge.judge(method, Credentials(role, files[role]).metadata(), {})
            assert (not isinstance(caller, Denial)) == (role in allowed), (method, role, caller)
    for role in Role:
        assert (folder / role).stat().st_mode & 0o077 == 0
        text = (folder / role).read_text()
        for other in set(Role) - {role}:
            assert files[other].secret(other) not in text


def test_each_of_several_learners_has_the_key_of_its_rank(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    assert main(["tokens", str(folder), "--learners", "3"]) == 0
    push = "/seedbed.v1.Gossip/Push"
    files = {rank: Tokens(folder / f"learner-{rank}") for rank in range(3)}
    for rank, file in files.items():
        peer = Credentials(Role.LEARNER, file).of_rank(rank)
        for other in set(files) - {rank}:
            judge = Credentials(Role.LEARNER, files[other]).of_rank(other)
            assert judge.judge(push, peer.metadata(), {}) == (Role.LEARNER, rank)
            assert judge.rank_of(peer.metadata()) == rank
            assert file.secret(Role.LEARNER, rank) not in (folder / f"learner-{other}").read_text()
            role_alone = Credentials(Role.LEARNER, file).tokens
            assert role_alone is not None
            token = [("authorization", f"Bearer {role_alone.secret(Role.LEARNER)}")]
            denial = judge.judge(push, token, {})
            assert isinstance(denial, Denial)
            assert "needs the key of a learner's rank" in denial.message
        with pytest.raises(SeedbedError, match="has no line `learner-5 SECRET`"):
            Credentials(Role.LEARNER, file).of_rank(5)
    shard = Credentials(Role.SHARD, Tokens(folder / "shard"))
    learner = Credentials(Role.LEARNER, files[0])
    assert shard.judge("/seedbed.v1.Replay/Insert", learner.metadata(), {}) == (Role.LEARNER, None)
    assert main(["tokens", str(tmp_path / "more"), "--learners", "1001"]) == ExitCode.USAGE


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
