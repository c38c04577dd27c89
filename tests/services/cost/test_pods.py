"""Pods are followed by a watch, and what they share is kept once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from seedbed.services.cost.pods import PodWatch
from tests.support.meter_api import meter_api


def numbers(pods: list[Any]) -> dict[str, str]:
    return {pod.metadata.name: pod.spec.node_name for pod in pods}


def test_changes_reach_the_meter_without_another_list(tmp_path: Path) -> None:
    with meter_api(tmp_path, {"actor": 600, "learner": 1}, time.time()) as api:
        config.load_kube_config(str(tmp_path / "kubeconfig"))
        watch = PodWatch(client.CoreV1Api(), "rl", "a=b")
        first = watch.refresh()
        assert api.calls == ["GET pods"] * 3, "pages of 250"
        assert numbers(first)["pong-actor-599"] == "node-599"
        assert first[0].spec.containers is first[599].spec.containers, "their template is one"
        assert first[0].status.start_time.timestamp() == pytest.approx(api.started, abs=1)
        api.scale("actor", 1)
        api.scale("learner", 2)
        assert set(numbers(watch.refresh())) == {"pong-actor-0", "pong-learner-0", "pong-learner-1"}
        assert api.calls[3:] == ["GET watch"]


def test_a_version_that_is_too_old_is_listed_anew_and_unchanged_pods_stay(tmp_path: Path) -> None:
    with meter_api(tmp_path, {"actor": 2, "learner": 1}, time.time()) as api:
        config.load_kube_config(str(tmp_path / "kubeconfig"))
        watch = PodWatch(client.CoreV1Api(), "rl", "a=b")
        before = watch.refresh()
        api.expired = True
        after = watch.refresh()
        assert api.calls == ["GET pods", "GET watch", "GET pods"]
        assert [id(pod) for pod in before] == [id(pod) for pod in after]
