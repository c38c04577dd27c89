"""An actor's metrics over real HTTP, and the server that both services share."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from seedbed.envs.failures import CAUSES
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.http import MetricsServer, start_metrics_server
from seedbed.services.actor.metrics import ActorMetrics
from tests.support.echo_actor import Actor
from tests.support.null_model import null_learner
from tests.support.waiting import wait_for


@pytest.fixture
def metrics() -> ActorMetrics:
    return ActorMetrics()


@pytest.fixture
def servers() -> Iterator[list[MetricsServer]]:
    opened: list[MetricsServer] = []
    yield opened
    for server in opened:
        server.close()


def ask(server: MetricsServer, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def scrape(server: MetricsServer) -> dict[str, float]:
    status, text = ask(server, "/metrics")
    assert status == 200
    families = text_string_to_metric_families(text)
    samples = [s for family in families for s in family.samples if "le" not in s.labels]
    return {" ".join([s.name, *s.labels.values()]): s.value for s in samples}


def test_everything_is_there_with_zero_and_then_counts(
    metrics: ActorMetrics, servers: list[MetricsServer]
) -> None:
    servers.append(server := MetricsServer(0, metrics.registry))
    assert set(scrape(server).values()) == {0.0}
    # A histogram has a count and a sum, and failures have causes.
    assert len(scrape(server)) == len(ActorMetrics.METRICS) + 2 + len(CAUSES) - 1
    for _ in range(3):
        metrics.on_step(32, 0.02, 0.001)
    metrics.reconnects += 1
    metrics.environment_failures["worker_died"] += 2
    metrics.connected_groups |= {"a", "b"}
    found = scrape(server)
    assert found["seedbed_actor_steps_total"] == 96
    assert found["seedbed_actor_step_seconds_count"] == 3
    assert found["seedbed_actor_step_seconds_sum"] == pytest.approx(0.06)
    assert found["seedbed_actor_wait_seconds_sum"] == pytest.approx(0.003)
    assert found["seedbed_actor_reconnects_total"] == 1
    assert found["seedbed_actor_environment_failures_total worker_died"] == 2
    assert found["seedbed_actor_groups"] == 2


def test_health_tells_the_reason(metrics: ActorMetrics, servers: list[MetricsServer]) -> None:
    reasons: list[str | None] = [None, "training took nothing for 300 s"]
    servers.append(server := MetricsServer(0, metrics.registry, unhealthy=lambda: reasons.pop(0)))
    assert ask(server, "/healthz") == (200, "ok\n")
    assert ask(server, "/healthz") == (503, "training took nothing for 300 s\n")


def test_status_is_json(metrics: ActorMetrics, servers: list[MetricsServer]) -> None:
    servers.append(server := MetricsServer(0, metrics.registry, status=lambda: {"frames": 3}))
    status, text = ask(server, "/status")
    assert (status, json.loads(text)) == (200, {"frames": 3})


def test_what_is_not_there_is_said(metrics: ActorMetrics, servers: list[MetricsServer]) -> None:
    servers.append(server := MetricsServer(0, metrics.registry))
    for path, method in (("/", "GET"), ("/status", "GET"), ("/profile", "POST")):
        status, text = ask(server, path, method)
        assert status == 404
        assert "GET /metrics, GET /healthz" in text


def test_a_defect_is_told_and_survived(
    metrics: ActorMetrics, servers: list[MetricsServer], caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> str | None:
        raise KeyError("mine")

    servers.append(server := MetricsServer(0, metrics.registry, unhealthy=broken))
    status, text = ask(server, "/healthz")
    assert status == 500
    assert "KeyError" in text
    assert "KeyError" in caplog.text
    assert ask(server, "/metrics")[0] == 200


def test_one_profile_at_a_time(metrics: ActorMetrics, servers: list[MetricsServer]) -> None:
    started, finish = threading.Event(), threading.Event()
    asked: list[float] = []

    def profile(seconds: float) -> str:
        asked.append(seconds)
        started.set()
        assert finish.wait(20)
        return "runs/x/tensorboard"

    servers.append(server := MetricsServer(0, metrics.registry, profile=profile))
    answers: list[tuple[int, str]] = []
    first = threading.Thread(
        target=lambda: answers.append(ask(server, "/profile?seconds=2.5", "POST"))
    )
    first.start()
    assert started.wait(20)
    assert ask(server, "/profile?seconds=1", "POST")[0] == 409
    assert ask(server, "/metrics")[0] == 200  # nobody waits for a profile
    finish.set()
    first.join(20)
    ((status, text),) = answers
    assert (status, json.loads(text)["directory"]) == (200, "runs/x/tensorboard")
    assert asked == [2.5]
    assert ask(server, "/profile?seconds=1", "POST")[0] == 200


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon", "301"])
def test_profile_of_no_length(
    metrics: ActorMetrics, servers: list[MetricsServer], seconds: str
) -> None:
    servers.append(server := MetricsServer(0, metrics.registry, profile=str))
    status, text = ask(server, f"/profile?seconds={seconds}", "POST")
    assert status == 400
    assert "at most 300" in text


def test_failed_profile_lets_the_next_one_run(
    metrics: ActorMetrics, servers: list[MetricsServer]
) -> None:
    def profile(seconds: float) -> str:
        raise OSError(28, "No space left on device")

    servers.append(server := MetricsServer(0, metrics.registry, profile=profile))
    for _ in range(2):
        status, text = ask(server, "/profile?seconds=1", "POST")
        assert status == 500
        assert "No space left" in text


def test_port_that_is_taken(metrics: ActorMetrics) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SeedbedError, match=str(port)) as caught:
            start_metrics_server(port, metrics.registry)
    assert caught.value.code is ExitCode.BIND


def test_port_zero_is_none(metrics: ActorMetrics) -> None:
    assert start_metrics_server(0, metrics.registry) is None


def test_closed_server_frees_its_port(metrics: ActorMetrics) -> None:
    server = MetricsServer(0, metrics.registry)
    server.close()
    MetricsServer(server.port, metrics.registry).close()


def test_the_actor_loop_counts_its_groups_and_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: list[MetricsServer]
) -> None:
    with null_learner(tmp_path, monkeypatch) as learner:
        actor = Actor(learner.address)
        servers.append(server := MetricsServer(0, actor.metrics.registry))
        actor.goes_on()
        found = scrape(server)
        assert found["seedbed_actor_groups"] == 1
        assert found["seedbed_actor_environment_failures_total hung"] == 0
        actor.group.failures = {"hung": 2}
        actor.goes_on()
        actor.group.failures = {"hung": 3, "step_raised": 1}
        actor.goes_on()
        found = scrape(server)
        assert found["seedbed_actor_environment_failures_total hung"] == 3
        assert found["seedbed_actor_environment_failures_total step_raised"] == 1
        actor.stop()
        wait_for(lambda: scrape(server)["seedbed_actor_groups"] == 0, "its stream has ended")


def test_steps_of_several_groups_are_all_counted() -> None:
    """Each group that shares memory with the learner counts in a thread of its own."""
    metrics = ActorMetrics()

    def count() -> None:
        for _ in range(20_000):
            metrics.on_step(3, 1e-3, 1e-3)
            metrics.on_failures(Counter({"exception": 1}))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.steps == 4 * 20_000 * 3
    assert metrics.environment_failures["exception"] == 4 * 20_000
