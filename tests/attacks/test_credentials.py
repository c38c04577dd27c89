"""A learner and a shard that listen beyond loopback, as processes: their roles and strangers."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from seedbed.cli.main import main
from seedbed.rpc import channels
from seedbed.rpc.credentials import MAY_CALL, Credentials
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.tokens import Role, Tokens, new_token_files
from tests.support.private_files import write_private
from tests.support.processes import START_S, Cluster, Process, cluster, free_port
from tests.support.waiting import wait_for


class Team:
    """A learner of two, and a shard, that listen on all addresses and demand tokens."""

    def __init__(self, stack: ExitStack, path: Path) -> None:
        self.tokens = path / "tokens"
        self.tokens.mkdir()
        for role, text in new_token_files().items():
            write_private(self.tokens / role, text)
        ports = [free_port() for _ in range(5)]
        self.inference, self.gossip, self.metrics, self.replay, _ = ports
        peers = [f"127.0.0.1:{port}" for port in (self.gossip, ports[4])]
        overrides = (
            f"learner.metrics_port={self.metrics}",
            f"gossip.addresses={json.dumps(peers)}",
            "gossip.replicas=2",
            "learner.backend=jax",
        )
        self.cluster: Cluster = stack.enter_context(cluster(path, *overrides))
        self.learner = self.cluster.start(
            "learner",
            *("--listen", f"0.0.0.0:{self.inference}", "--run-dir", str(self.cluster.run)),
            *self.token_file(Role.LEARNER),
        )
        self.shard = Process(
            path / "shard",
            *("replay", "--sequences", "100", "--metrics-port", "0"),
            *("--listen", f"0.0.0.0:{self.replay}", *self.token_file(Role.SHARD)),
        )
        stack.callback(self.shard.popen.wait)
        stack.callback(self.shard.popen.kill)

    def token_file(self, role: Role) -> tuple[str, str]:
        return "--token-file", str(self.tokens / role)

    def secret(self, role: Role) -> str:
        return Tokens(self.tokens / role).secret(role)

    def listens(self, process: Process) -> None:
        def said() -> bool:
            process.runs()
            return "listening on" in process.said

        wait_for(said, "it listens", START_S)

    def code_of(self, port: int, method: str, role: Role | None) -> grpc.StatusCode | None:
        """How a call without messages ends; None while it is served."""
        metadata = []
        if role is not None:
            credentials = Credentials(role, Tokens(self.tokens / role))
            metadata = list(credentials.metadata())
        with channels.channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_stream(method)(iter(()), metadata=metadata, timeout=20,
                                                 wait_for_ready=True)  # fmt: skip
            try:
                next(call, None)
            except grpc.RpcError as error:
                return error.code()
        return None


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """It trains with an actor that has a token."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        environment.setenv("SEEDBED_METRICS_HOST", "0.0.0.0")
        team = Team(stack, tmp_path_factory.mktemp("team"))
        team.listens(team.learner)
        team.listens(team.shard)
        address = f"127.0.0.1:{team.inference}"
        team.cluster.start("actor", "--learner", address, *team.token_file(Role.ACTOR))
        team.cluster.trains(team.learner)
        yield team


def own_address() -> str | None:
    """An address of this machine beyond loopback; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.7", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


@pytest.mark.slow
def test_an_actor_needs_the_token_of_its_role(team: Team) -> None:
    """Without one, or with an observer's, it ends with exit code 31; the one with its own plays."""
    address = f"127.0.0.1:{team.inference}"
    file = team.tokens / "wrong"
    write_private(file, f"actor {team.secret(Role.OBSERVER)}\n")
    stranger = team.cluster.start("actor", "--learner", address)
    other = team.cluster.start("actor", "--learner", address, "--token-file", str(file))
    assert stranger.wait() == other.wait() == ExitCode.REFUSED_BY_LEARNER
    assert "give the client --token-file" in stranger.last_lines()[-2]
    assert "is for the role actor, and the credential is of role observer" in other.last_lines()[-2]
    team.cluster.trains(team.learner)


@pytest.mark.slow
def test_every_method_is_for_its_roles(team: Team) -> None:
    ports = {"Inference": team.inference, "Replay": team.replay, "Gossip": team.gossip}
    refused = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
    for method, allowed in MAY_CALL.items():
        port = ports[method.split(".")[-1].split("/")[0]]
        assert team.code_of(port, method, None) is grpc.StatusCode.UNAUTHENTICATED, method
        for role in Role:
            code = team.code_of(port, method, role)
            if role in allowed:
                assert code not in refused, (method, role)
            else:
                assert code in refused, (method, role)
    assert team.code_of(team.replay, "/seedbed.v1.Replay/Insert", Role.ACTOR) in refused
    assert team.code_of(team.gossip, "/seedbed.v1.Gossip/Fetch", Role.ACTOR) in refused


@pytest.mark.slow
def test_status_is_read_with_a_token(team: Team, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{team.inference}"
    assert main(["status", address]) == ExitCode.REFUSED_BY_LEARNER
    assert "UNAUTHENTICATED: a token of this release is required" in capsys.readouterr().err
    assert main(["status", address, *team.token_file(Role.SHARD)]) == ExitCode.CONFIG
    assert "has no line `observer SECRET`" in capsys.readouterr().err
    # In a pod the only file is the pod's own.
    for role in (Role.OBSERVER, Role.LEARNER, Role.ACTOR):
        assert main(["status", address, "--json", *team.token_file(role)]) == 0
        assert json.loads(capsys.readouterr().out)["counters"]


@pytest.mark.slow
def test_http_beyond_loopback_needs_a_token(team: Team) -> None:
    host = own_address()
    if host is None:
        pytest.skip("this machine has no address beyond loopback")

    def code(method: str, path: str, role: Role | None = None) -> int:
        url = f"http://{host}:{team.metrics}{path}"
        request = urllib.request.Request(url, method=method)
        if role is not None:
            request.add_header("Authorization", f"Bearer {team.secret(role)}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert [code("GET", path) for path in ("/metrics", "/healthz", "/readyz")] == [200] * 3
    assert code("GET", "/status") == code("POST", "/profile") == 401
    assert code("GET", "/status", Role.OBSERVER) == 200
    assert code("GET", "/status", Role.ACTOR) == code("POST", "/profile", Role.LEARNER) == 403
    assert code("POST", "/profile?seconds=x", Role.OBSERVER) == 400, "it is let through"
    assert not (team.cluster.run / "profile").exists()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("command", ["learner", "replay"])
def test_listening_beyond_loopback_needs_a_credential(command: str, tmp_path: Path) -> None:
    arguments = {
        "learner": ("cartpole-vtrace", "--run-dir", str(tmp_path / "run")),
        "replay": ("--sequences", "10", "--metrics-port", "0"),
    }
    process = Process(tmp_path, command, *arguments[command], "--listen", "0.0.0.0:0")
    assert process.wait() == ExitCode.CONFIG
    cause = process.last_lines()[-2]
    assert "0.0.0.0:0 is beyond this machine" in cause
    assert "give --token-file" in cause
