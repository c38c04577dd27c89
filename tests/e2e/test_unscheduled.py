"""What the API server and both Helms say about releases whose pods no node takes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.release import CHART, Release, command, values

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

NOWHERE: dict[str, Any] = {"pod": {"nodeSelector": {"seedbed.test/nowhere": "true"}}}


def given(**more: Any) -> dict[str, Any]:
    """Values without a pod that runs; nor does the meter that makes tokens, so there are none."""
    learner = {**NOWHERE, "persistence": {"size": "1.5Gi"}, **more.pop("learner", {})}
    actor = {**NOWHERE, "replicas": 3, **more.pop("actor", {})}
    return values(learner=learner, actor=actor, cost=NOWHERE, auth={"enabled": False}, **more)


@pytest.fixture(params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest) -> str:
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} here")
    return str(request.param)


def test_a_scaled_number_survives_upgrades(helm: str, namespace: str, tmp_path: Path) -> None:
    release = Release(f"scaled-{helm}", namespace, tmp_path, helm)
    deployment = f"deployment/{release.name}-actor"
    release.install(given())
    assert release.replicas(deployment) == 3
    for number in (5, 0, 7):
        release.scale(deployment, number)
        # The API server has 1.5Gi as 1536Mi.
        release.upgrade(given(extraLabels={"number": f"n{number}"}))
        assert release.replicas(deployment) == number, "a later upgrade keeps the scaled number"
    # The learner that was taken to zero at the end stays there too.
    release.scale(f"statefulset/{release.name}-learner", 0)
    release.upgrade(given())
    assert release.replicas(f"statefulset/{release.name}-learner") == 0
    answer = command(helm, "upgrade", release.name, str(CHART), "-n", namespace, "--reuse-values",
                     "--set", "learner.persistence.size=2Gi", check=False)  # fmt: skip
    assert "learner.persistence" in answer
    assert "cannot change in a release" in answer
    # Another number in the values is meant: Helm 4 asks to be told that it is.
    changed = given(actor={"replicas": 4})
    release.upgrade(changed, *(["--force-conflicts"] if helm == "helm4" else []))
    assert release.replicas(deployment) == 4
    release.uninstall()


def test_the_number_of_learners_is_changed_by_helm(
    helm: str, namespace: str, tmp_path: Path
) -> None:
    release = Release(f"number-{helm}", namespace, tmp_path, helm)
    learner = f"statefulset/{release.name}-learner"

    def learners(replicas: int) -> dict[str, Any]:
        return given(learner={"replicas": replicas})

    def asked(replicas: int) -> str:
        return release.kubectl("scale", learner, f"--replicas={replicas}", check=False)

    release.install(learners(1))
    assert asked(2).endswith("scaled\n"), "one learner has no topology"
    asked(1)
    release.upgrade(learners(3), *(["--force-conflicts"] if helm == "helm4" else []))
    assert release.replicas(learner) == 3
    # The API server takes a moment to know a new policy.
    release.until(lambda: "were asked for" in asked(5), "the policy is known")
    release.scale(learner, 3)
    said = asked(2)
    assert f"2 learners were asked for, and the topology of {release.name} has 3" in said
    assert "--set learner.replicas=2" in said
    assert release.replicas(learner) == 3
    # As at the end of an experiment, and when it goes on.
    for number in (0, 3):
        release.scale(learner, number)
        release.upgrade(learners(3))
        assert release.replicas(learner) == number
    # Another release, or another namespace, is none of its business.
    other = Release(f"other-{helm}", namespace, tmp_path, helm)
    other.install(learners(1))
    other.scale(f"statefulset/{other.name}-learner", 2)
    other.uninstall()
    # Helm 4 asks to be told that it may change what was scaled.
    release.upgrade(learners(4), *(["--force-conflicts"] if helm == "helm4" else []))
    assert release.replicas(learner) == 4
    # 2 is refused before as well: a number that were taken meanwhile would be kubectl's.
    release.until(lambda: f"topology of {release.name} has 4" in asked(2), "it knows the number")
    answer = command(helm, "upgrade", release.name, str(CHART), "-n", namespace, "--reuse-values",
                     "--set", "experiment.gossip.replicas=3", check=False)  # fmt: skip
    assert "learner.replicas is 4, and experiment.gossip.replicas is 3" in answer
    release.upgrade(learners(1))
    release.until(lambda: asked(2).endswith("scaled\n"), "the policy has gone")
    release.uninstall()
    both = "validatingadmissionpolicies,validatingadmissionpolicybindings"
    assert f"{namespace}.{release.name}-learner" not in command(
        "kubectl", "get", both, "-o", "name"
    )


def test_two_namespaces_have_a_release_of_one_name(
    namespace: str, another_namespace: str, tmp_path: Path
) -> None:
    """Objects of the whole cluster have names of their own."""
    more: dict[str, Any] = {"cost": {**NOWHERE, "readNodes": True}}
    both = [Release("twin", name, tmp_path) for name in (namespace, another_namespace)]
    for release in both:
        release.install({**given(), **more})
    for release in both:
        assert release.replicas("deployment/twin-actor") == 3
        release.uninstall()
