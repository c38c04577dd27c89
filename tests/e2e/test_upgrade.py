"""A run of 0.1 under its own chart and images, which goes on under this chart and these images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.release import ROOT, Release, values

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_all, pytest.mark.timeout(1500)]

OLD_CHART = ROOT / "tests" / "fixtures" / "v0_1" / "seedbed-0.1.0.tgz"
# localhost/seedbed-{learner,actor,cost} of commit 34286b8.
OLD_TAG = os.environ.get("SEEDBED_E2E_OLD_TAG", "0.1.0")


def test_a_run_of_0_1_goes_on(namespace: str, tmp_path: Path) -> None:
    run = Release("elder", namespace, tmp_path)
    new = values()
    size = new["learner"].pop("persistence")
    inference = new["experiment"]["learner"]["inference"]
    inference["batch_environments"] = inference.pop("batch_envs")
    old: dict[str, Any] = {
        "experiment": {**new["experiment"], "actor": {"environments": 4, "groups": 2}},
        "image": {"tag": OLD_TAG},
        "learner": {**new["learner"], "storage": size},
        "actor": new["actor"],
    }
    run.install(old, chart=OLD_CHART)
    run.trains()
    frames = run.trains()
    claims = {item["metadata"]["uid"] for item in run.get("pvc")["items"]}
    run.upgrade(values())

    def is_ours() -> bool:
        pods = run.pods("learner")
        images = [pod["spec"]["containers"][0]["image"] for pod in pods]
        return bool(images) and not any(image.endswith(OLD_TAG) for image in images)

    run.until(is_ours, "the learner's pod is of this chart")
    assert run.trains(beyond=frames // 2) > frames // 2, "from its checkpoint"
    assert {item["metadata"]["uid"] for item in run.get("pvc")["items"]} == claims
    run.uninstall()
