"""A learner of two hosts on a real cluster with JobSet: one killed, both paused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.release import Release, command, values
from tests.support.chart import merged

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_all, pytest.mark.timeout(1500)]

NAME = "duo-learner"


@pytest.fixture
def release(namespace: str, tmp_path: Path) -> Release:
    if "jobset.x-k8s.io" not in command("kubectl", "api-versions"):
        pytest.skip("the cluster has no JobSet controller")
    return Release("duo", namespace, tmp_path)


def two(**more: Any) -> dict[str, Any]:
    """Two hosts on CPUs, and an actor for each; images of the JAX backend."""
    hosts = {
        "experiment": {"learner": {"backend": "jax"}},
        "learner": {"hosts": 2},
        "actor": {"replicas": 2},
    }
    return merged(merged(values(), hosts), more)


def host(release: Release, number: int) -> str:
    """The pod of a host, without the release's name; "" while there is none."""
    label = "batch.kubernetes.io/job-completion-index"
    for pod in release.pods("learner"):
        gone = "deletionTimestamp" in pod["metadata"]
        if not gone and pod["metadata"]["annotations"].get(label) == str(number):
            return str(pod["metadata"]["name"]).removeprefix(f"{release.name}-")
    return ""


def frames(release: Release) -> int:
    """Frames of both hosts together, -1 while the first one does not answer."""
    first = host(release, 0)
    status = release.on_loopback(first, 9090) if first else None
    return int(status["counters"]["env_frames"]) if status else -1


def restarts(release: Release) -> int:
    return int(release.get("jobset", NAME).get("status", {}).get("restarts", 0))


def test_a_killed_host_restarts_both_and_a_pause_suspends_them(release: Release) -> None:
    release.install(two())
    before = release.until(lambda: max(0, frames(release) - 2_000), "two hosts train")
    old = {pod["metadata"]["uid"] for pod in release.pods("learner")}
    assert len(old) == 2
    saved = release.until(lambda: release.saved_frames(host(release, 0)), "a checkpoint")

    killed = f"{release.name}-{host(release, 1)}"
    release.kubectl("delete", "pod", killed, "--grace-period=0", "--force")
    release.until(lambda: restarts(release) > 0, "the JobSet starts all again")
    release.until(
        lambda: not old & {pod["metadata"]["uid"] for pod in release.pods("learner")},
        "both hosts are others",
    )
    first = release.until(lambda: frames(release) + 1, "the first host answers") - 1
    assert first >= saved, "frames never go back past the last checkpoint"
    release.until(lambda: frames(release) > before, "frames go on")

    release.upgrade(two(paused=True))
    release.until(lambda: release.get("jobset", NAME)["spec"]["suspend"], "the meter suspends it")
    release.until(lambda: not release.pods("learner"), "both hosts are gone")
    release.upgrade(two())
    release.until(lambda: frames(release) >= before, "they resume")
