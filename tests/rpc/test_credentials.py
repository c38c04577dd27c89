"""Token files, roles and addresses."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from seedbed.rpc.credentials import (
    MAY_CALL,
    Credentials,
    Denial,
    check_exposure,
    is_local,
)
from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.tokens import Role, Tokens
from tests.support.private_files import write_private

ROOT = Path(__file__).parents[2]
ACT = "/seedbed.v1.Inference/Act"
PUSH = "/seedbed.v1.Gossip/Push"
SECRETS = {role: f"{role}-0123456789abcdef" for role in Role}


def token_file(folder: Path, *lines: str) -> Path:
    return write_private(folder / "tokens", "\n".join(lines))


def bearer(secret: str) -> list[tuple[str, str | bytes]]:
    return [("user-agent", "x"), ("authorization", f"Bearer {secret}")]


@pytest.fixture
def server(tmp_path: Path) -> Credentials:
    path = token_file(tmp_path, *(f"{role} {secret}" for role, secret in SECRETS.items()))
    return Credentials(Role.LEARNER, Tokens(path))


def code(credentials: Credentials, method: str, secret: str) -> grpc.StatusCode | None:
    caller = credentials.judge(method, bearer(secret), {})
    return caller.code if isinstance(caller, Denial) else None


@pytest.mark.parametrize("method", MAY_CALL)
@pytest.mark.parametrize("role", Role)
def test_a_role_calls_its_own_methods_only(server: Credentials, method: str, role: Role) -> None:
    expected = None if role in MAY_CALL[method] else grpc.StatusCode.PERMISSION_DENIED
    assert code(server, method, SECRETS[role]) is expected


def test_an_actor_neither_gossips_nor_fills_shards(server: Credentials) -> None:
    for method in MAY_CALL:
        if not method.startswith("/seedbed.v1.Inference/"):
            assert code(server, method, SECRETS[Role.ACTOR]) is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("secret", ["", "actor", SECRETS[Role.ACTOR][:-1], "x" * 600, "é"])
def test_an_unknown_secret_is_refused(server: Credentials, secret: str) -> None:
    assert code(server, ACT, secret) is grpc.StatusCode.UNAUTHENTICATED


def test_a_call_without_metadata_or_with_another_scheme_is_refused(server: Credentials) -> None:
    for metadata in (
        [],
        [("authorization", SECRETS[Role.ACTOR])],
        [("authorization", b"Bearer x")],
    ):
        denial = server.judge(ACT, metadata, {})
        assert isinstance(denial, Denial)
        assert denial.code is grpc.StatusCode.UNAUTHENTICATED
        assert "--token-file" in denial.message


def test_a_method_without_a_role_is_refused(server: Credentials) -> None:
    assert code(server, "/seedbed.v1.New/Method", SECRETS[Role.LEARNER]) is (
        grpc.StatusCode.PERMISSION_DENIED
    )


def test_a_digest_checks_a_secret_and_cannot_be_sent(tmp_path: Path) -> None:
    secret = SECRETS[Role.LEARNER]
    digest = hashlib.sha256(secret.encode()).hexdigest()
    shard = Credentials(Role.SHARD, Tokens(token_file(tmp_path, f"learner sha256:{digest}")))
    insert = "/seedbed.v1.Replay/Insert"
    assert code(shard, insert, secret) is None
    assert code(shard, insert, f"sha256:{digest}") is grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(SeedbedError, match="no line `learner SECRET`"):
        Credentials(Role.LEARNER, shard.tokens).metadata()


def test_a_client_sends_the_first_secret_of_its_role(tmp_path: Path) -> None:
    path = token_file(
        tmp_path, "# rotated", "", "actor new-0123456789abcdef", "actor old-0123456789abcdef"
    )
    tokens = Tokens(path)
    assert Credentials(Role.ACTOR, tokens).metadata() == (
        ("authorization", "Bearer new-0123456789abcdef"),
    )
    server = Credentials(Role.LEARNER, tokens)
    assert code(server, ACT, "old-0123456789abcdef") is None


def test_a_rotated_file_counts_at_the_next_call(server: Credentials, tmp_path: Path) -> None:
    renewed = tmp_path / "renewed"
    write_private(renewed, "actor renewed-0123456789abcdef\n")
    renewed.rename(tmp_path / "tokens")
    assert code(server, ACT, SECRETS[Role.ACTOR]) is grpc.StatusCode.UNAUTHENTICATED
    assert code(server, ACT, "renewed-0123456789abcdef") is None


def test_a_file_that_breaks_or_goes_leaves_the_old_tokens_valid(
    server: Credentials, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text("actor\n")
    assert code(server, ACT, SECRETS[Role.ACTOR]) is None
    (tmp_path / "tokens").unlink()
    assert code(server, ACT, SECRETS[Role.ACTOR]) is None


def test_a_file_that_opens_to_others_leaves_the_old_tokens_valid(
    server: Credentials, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    renewed = tmp_path / "renewed"
    renewed.write_text("actor renewed-0123456789abcdef\n")
    renewed.chmod(0o644)
    renewed.rename(tmp_path / "tokens")
    assert code(server, ACT, SECRETS[Role.ACTOR]) is None
    assert code(server, ACT, "renewed-0123456789abcdef") is grpc.StatusCode.UNAUTHENTICATED
    assert "has mode 0644" in caplog.text


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
def test_a_file_of_its_owner_alone_is_read(mode: int, tmp_path: Path) -> None:
    path = token_file(tmp_path, f"actor {SECRETS[Role.ACTOR]}")
    path.chmod(mode)
    assert Tokens(path).has_secret(Role.ACTOR)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o601, 0o640, 0o620, 0o644])
def test_secrets_that_others_may_have_are_refused(mode: int, tmp_path: Path) -> None:
    path = token_file(tmp_path, f"actor {SECRETS[Role.ACTOR]}")
    path.chmod(mode)
    with pytest.raises(SeedbedError, match=rf"--token-file: .* mode {mode:04o}.*chmod 0600") as no:
        Tokens(path)
    assert no.value.code is ExitCode.CONFIG
    for name in ("tls.key", "tls.crt", "ca.crt"):
        write_private(tmp_path / name, "-----BEGIN CERTIFICATE-----\n").chmod(mode)
    with pytest.raises(SeedbedError, match=rf"--tls .*tls.key has mode {mode:04o}"):
        Tls(tmp_path)
    (tmp_path / "tls.key").chmod(0o600)
    Tls(tmp_path)  # certificates are public


def test_a_group_has_the_file_of_another_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Secret's volume: root owns it, `fsGroup` is the process's, and its mode is 0440."""
    path = token_file(tmp_path, f"actor {SECRETS[Role.ACTOR]}")
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    path.chmod(0o440)
    assert Tokens(path).has_secret(Role.ACTOR)
    path.chmod(0o444)
    with pytest.raises(SeedbedError, match="chmod 0440"):
        Tokens(path)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("actor", "line 2 .* is not `ROLE SECRET`"),
        ("king 0123456789abcdef", "line 2 .* is not `ROLE SECRET`"),
        ("actor short", "line 2 .* has no secret of 16"),
        ("actor sha256:12", "line 2 .* has no secret of 16"),
    ],
)
def test_a_wrong_line_is_refused_without_its_secret(tmp_path: Path, line: str, cause: str) -> None:
    with pytest.raises(SeedbedError, match=cause) as caught:
        Tokens(token_file(tmp_path, "# tokens", line))
    assert caught.value.code is ExitCode.CONFIG
    assert line.split()[-1] not in str(caught.value).replace(str(tmp_path), "").replace(
        "actor,", ""
    )


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SeedbedError, match=r"cannot read .*: No such file"):
        Tokens(tmp_path / "none")


def certificate(*names: str) -> dict[str, list[bytes]]:
    return {"x509_subject_alternative_name": [name.encode() for name in names]}


@pytest.fixture
def with_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Credentials:
    for name in ("tls.key", "tls.crt", "ca.crt"):
        write_private(tmp_path / name, "-----BEGIN CERTIFICATE-----\n")
    return Credentials(Role.LEARNER, None, Tls(tmp_path), "pong.default")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["pong-actor", "actor.pong.default.seedbed"], None),
        (["learner.pong.default.seedbed"], grpc.StatusCode.PERMISSION_DENIED),
        (["actor.breakout.default.seedbed"], grpc.StatusCode.PERMISSION_DENIED),
        (["pong-actor"], grpc.StatusCode.UNAUTHENTICATED),
        (["actor.seedbed"], grpc.StatusCode.UNAUTHENTICATED),
        (["king.pong.default.seedbed"], grpc.StatusCode.UNAUTHENTICATED),
        ([], grpc.StatusCode.UNAUTHENTICATED),
    ],
)
def test_the_role_of_a_certificate_decides(
    with_tls: Credentials, names: list[str], expected: grpc.StatusCode | None
) -> None:
    caller = with_tls.judge(ACT, [], certificate(*names))
    denial = caller if isinstance(caller, Denial) else None
    assert (denial and denial.code) is expected


def test_token_and_certificate_have_the_same_role(with_tls: Credentials, tmp_path: Path) -> None:
    tokens = Tokens(token_file(tmp_path, *(f"{r} {s}" for r, s in SECRETS.items())))
    both = Credentials(Role.LEARNER, tokens, with_tls.tls)
    actor = bearer(SECRETS[Role.ACTOR])
    for name in ("actor.a.b.seedbed", "no-role"):
        assert both.judge(ACT, actor, certificate(name)) == (Role.ACTOR, None)
    for metadata, names in ((actor, "learner.a.b.seedbed"), ([], "actor.a.b.seedbed")):
        assert isinstance(both.judge(ACT, metadata, certificate(names)), Denial)


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("unix:run/learner.sock", True),
        ("127.0.0.1:8470", True),
        ("127.9.9.9:0", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:8470", False),
        ("[::]:8470", False),
        ("10.0.0.1:1", False),
        ("localhost.evil.example:1", False),
        ("127.evil.example:1", False),
    ],
)
def test_exposure_needs_a_credential(server: Credentials, address: str, local: bool) -> None:
    assert is_local(address) == local
    open_to_all = Credentials(Role.LEARNER)
    check_exposure(address, server, "--listen")
    check_exposure(address, replace(open_to_all, insecure=True), "--listen")
    if local:
        check_exposure(address, open_to_all, "--listen")
    else:
        with pytest.raises(SeedbedError, match=r"--token-file .* --tls, or --insecure") as caught:
            check_exposure(address, open_to_all, "--listen")
        assert caught.value.code is ExitCode.CONFIG


def test_insecure_contradicts_a_credential(server: Credentials) -> None:
    with pytest.raises(SeedbedError, match="contradicts"):
        check_exposure("0.0.0.0:1", replace(server, insecure=True), "--listen")


@pytest.mark.parametrize("text", ["", "# nothing", "\n\n"])
def test_a_file_without_a_token_is_refused_and_replaces_none(
    server: Credentials, tmp_path: Path, text: str
) -> None:
    with pytest.raises(SeedbedError, match="has no token"):
        Tokens(token_file(tmp_path, text))
    assert code(server, ACT, SECRETS[Role.ACTOR]) is None, "the tokens from before stay valid"


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1", "host:", ""])
def test_what_is_no_address_is_said(server: Credentials, address: str) -> None:
    with pytest.raises(SeedbedError, match="is no address: give host:port or unix:PATH"):
        check_exposure(address, server, "--listen")


def test_the_page_of_security_has_every_method_with_its_roles() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|\n ").split("|")]
        for line in (ROOT / "docs" / "security.md").read_text().splitlines()
        if "`Inference/" in line or "`Replay/" in line or "`Gossip/" in line
    ]
    shown: dict[str, set[str]] = {}
    for _, methods, roles in rows:
        service = ""
        for word in re.findall("`(.+?)`", methods):
            service = word.partition("/")[0] if "/" in word else service
            shown[f"/seedbed.v1.{service}/{word.rpartition('/')[2]}"] = set(roles.split(", "))
    assert shown == {method: {str(role) for role in roles} for method, roles in MAY_CALL.items()}
