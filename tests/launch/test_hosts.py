"""Hosts of a learner on one machine: which one was lost, which number a host has."""

from __future__ import annotations

import argparse

import pytest

from seedbed.cli.hosts import VARIABLES, host_of
from seedbed.config.load import parse_experiment
from seedbed.launch.hosts import why_lost
from seedbed.runtime.exit_codes import ConfigError

# What JAX logs, shortened.
SILENT = """F1123 client.h:80] Terminating process because the JAX service detected fatal
errors. absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):
1
The tasks have crashed. Check the task logs for an earlier error
"""
LEADER = (
    "F1123 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors. absl::Status: UNAVAILABLE: Failed to send RPC to coordination service. Either the "
    "leader task was preempted/died/restarted unexpectedly"
)
ABSENT = """absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded

RPC: /xla.coordination.CoordinationService/RegisterTask
"""
EXPERIMENT = """
name: hosts
environment: {id: CartPole-v1}
agent: vtrace
learner: {backend: jax, batch_size: 16, hosts: 2, coordinator: "127.0.0.1:1"}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SILENT, "host 1 of 2 was lost: it gave no sign of life"),
        (LEADER, "host 0 of 2 was lost: it no longer answers"),
        (ABSENT, "not all of the 2 hosts came"),
        ("Segmentation fault", None),
    ],
)
def test_the_log_names_the_lost_host(text: str, expected: str | None) -> None:
    assert why_lost(text, 2) == expected


def number(given: int | None, *overrides: str) -> int | None:
    experiment = parse_experiment(EXPERIMENT, overrides)
    return host_of(argparse.Namespace(host=given), experiment)


def test_a_host_has_its_number_from_the_option_or_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert number(1) == 1
    assert number(None, "learner.hosts=1") is None
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    assert number(None) == 1
    assert number(0) == 0, "the option counts"


@pytest.mark.parametrize(
    ("given", "overrides", "message"),
    [
        (None, (), "give each its number, --host 0 to 1"),
        (2, (), "host 2: learner.hosts is 2, so the hosts are 0 to 1"),
        (0, ("learner.coordinator=''",), "learner.coordinator is empty"),
        (1, ("learner.hosts=1",), "learner.hosts is 1"),
    ],
)
def test_a_wrong_number_is_refused(
    given: int | None, overrides: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=message):
        number(given, *overrides)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learner.batch_size=17", "batch_size 17 cannot be divided among 2 hosts: 16 or 18 can"),
        ("learner.backend=tensorflow", "backend is tensorflow"),
        ("learner.deterministic=true", "deterministic is one thread"),
        ("learner.coordinator=nowhere", "is no address"),
        ("gossip={replicas: 2, topology: allreduce}", "use gossip.replicas 1 and learner.hosts 4"),
        ("gossip={replicas: 2, topology: hogwild}", "use gossip.replicas 1 and learner.hosts 4"),
        ("gossip={replicas: 2, gradients_every: 3}", "the gradients of several hosts"),
    ],
)
def test_what_does_not_fit_hosts_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_experiment(EXPERIMENT, [override])


def test_replay_of_several_hosts_is_in_their_memory() -> None:
    with pytest.raises(ConfigError, match="use storage host"):
        parse_experiment(
            EXPERIMENT, ["agent=r2d2", "r2d2.burn_in=0", "learner.replay.storage=device"]
        )
