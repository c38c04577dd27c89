"""`seedbed controller`: where the tokens of a set come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seedbed.cli import controller as command
from seedbed.cli.main import main
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.tokens import Role, new_token_files
from seedbed.services.cost import token_secret
from seedbed.services.sets import api, spec
from seedbed.services.sets.controller import SetController
from tests.support.private_files import write_private
from tests.support.set_cluster import SetCluster
from tests.support.set_cluster import spec as small_set


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The command of a controller that ends at once, of an account that may touch no Secret."""

    def refused(*_: Any) -> None:
        raise AssertionError("the Secret is made, and is somebody else's")

    monkeypatch.setattr(token_secret, "TokenSecret", refused)
    monkeypatch.setattr(api, "SetApi", lambda *_: SetCluster(tmp_path))
    monkeypatch.setattr(spec, "read_spec", lambda _: small_set())
    monkeypatch.setattr(command, "exit_on_sigterm", lambda: None)
    monkeypatch.setattr(command, "on_stop_signals", lambda _: None)
    folder = tmp_path / "set"
    return ("controller", "--set=lab", "--namespace=rl", f"--spec={tmp_path}",
            f"--folder={folder}", "--port=0")  # fmt: skip


def test_with_tokens_in_a_file_it_touches_no_secret(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = []

    def run(self: SetController, _: object) -> None:
        self.reconcile()
        rounds.append(dict(self.errors))

    monkeypatch.setattr(SetController, "run", run)
    file = tmp_path / "tokens"
    write_private(file, new_token_files()[Role.OBSERVER])
    monkeypatch.setenv("SEEDBED_TOKEN_FILE", str(file))
    assert main([*words]) == 0
    assert rounds == [{}]


def test_it_is_ready_once_the_set_is_told(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`seedbed deploy` waits for that, and then tells what the set does."""
    servers: list[dict[str, Any]] = []

    class Server:
        def __init__(self, *_: Any, **given: Any) -> None:
            servers.append(given)

        def close(self) -> None: ...

    told = []

    def run(self: SetController, _: object) -> None:
        told.append(servers[0]["unready"]())
        self.reconcile()
        told.append(servers[0]["unready"]())

    monkeypatch.setattr(command, "MetricsServer", Server)
    monkeypatch.setattr(SetController, "run", run)
    file = tmp_path / "tokens"
    write_private(file, new_token_files()[Role.OBSERVER])
    assert main([*words, f"--token-file={file}"]) == 0
    assert told == ["no round yet", None]


def test_a_file_of_another_role_is_refused_at_the_start(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokens"
    write_private(file, new_token_files()[Role.ACTOR])
    assert main([*words, f"--token-file={file}"]) == ExitCode.CONFIG
    assert "observer" in capsys.readouterr().err
