"""A release in a queue of the real Kueue: admitted, beyond its quota, paused, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.release import ROOT, Release, command, values

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_all, pytest.mark.timeout(1500)]

PLATFORM = ROOT / "helm" / "seedbed-platform"
# The learner asks for 100m and each actor for 50m: there is room for two actors.
QUOTA = {"cpu": "210m", "memory": "4Gi"}


@pytest.fixture
def queue(namespace: str, tmp_path: Path) -> Iterator[str]:
    """A queue of the platform's chart in this namespace."""
    if "kueue.x-k8s.io" not in command("kubectl", "api-versions"):
        pytest.skip("the cluster has no Kueue")
    flavor = {"name": namespace, "nodeLabels": {}, "resources": QUOTA}
    kueue = {"enabled": True, "name": namespace, "namespaces": [namespace], "flavors": [flavor]}
    given = {"kueue": kueue, "dashboard": {"enabled": False}}
    file = tmp_path / "platform.json"
    file.write_text(json.dumps(given))
    command("helm", "install", "platform", str(PLATFORM), "-n", namespace, "-f", str(file))
    yield namespace
    command("helm", "uninstall", "platform", "-n", namespace, "--wait")


def gated(release: Release, component: str = "actor") -> int:
    """Pods of a component that Kueue holds back."""
    return sum(bool(pod["spec"].get("schedulingGates")) for pod in release.pods(component))


def test_a_release_waits_for_its_quota(namespace: str, queue: str, tmp_path: Path) -> None:
    queued = Release("queued", namespace, tmp_path)
    # Actors that are admitted first would leave no room for their learner.
    queued.install(values(pod={"queueName": queue}, actor={"replicas": 0}))
    queued.until(
        lambda: queued.pods("learner") and not gated(queued, "learner"), "the learner is admitted"
    )
    given: dict[str, Any] = values(pod={"queueName": queue}, actor={"replicas": 3})
    queued.upgrade(given)
    queued.trains()
    queued.until(lambda: queued.sessions(4), "two actors play")
    assert gated(queued) == 1, "the third one is beyond the quota"
    queued.upgrade(values(pod={"queueName": queue}, actor={"replicas": 3}, paused=True))
    queued.until(lambda: not queued.pods("actor") + queued.pods("learner"), "all have left")
    queued.upgrade(given)
    queued.until(lambda: queued.sessions(4), "they are back")
    queued.until(lambda: gated(queued) == 1, "and one waits again")
    queued.uninstall()
