"""The profiles of GKE and its compute classes: each is one `-f`, and they agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from seedbed.config import parse_experiment
from tests.support.chart import CHART, ROOT, merged, render

PROFILES = {path.stem: path for path in (CHART / "profiles").glob("gke-*.yaml")}
CLASSES = {path.stem: path for path in (ROOT / "k8s" / "gke").glob("*.yaml")}


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def pods(profile: str, values: dict[str, Any] | None = None) -> dict[str, Any]:
    whole = merged(read(PROFILES[profile]), values or {})
    return {name: pod["spec"] for name, pod in render(whole).pods().items()}


def test_there_is_one_for_each_kind_of_cluster() -> None:
    assert PROFILES.keys() == {"gke-autopilot", "gke-standard-gpu", "gke-tpu"}


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_profile_alone_is_enough(name: str) -> None:
    rendered = render(read(PROFILES[name]))
    assert rendered.of("PodMonitoring"), "GKE's own Prometheus"
    assert not rendered.of("ClusterRole"), "an admin of the namespace installs it"
    assert rendered.of("NetworkPolicy")
    actor = pods(name)["pong-actor"]
    assert actor["nodeSelector"] == {"cloud.google.com/gke-spot": "true"}
    assert actor["terminationGracePeriodSeconds"] <= 15
    for spec in pods(name).values():
        for container in spec["containers"]:
            assert "memory" in container["resources"]["limits"], (
                "Autopilot makes up what is missing"
            )


def test_what_the_profiles_ask_for() -> None:
    gpu = pods("gke-standard-gpu")["pong-learner"]
    assert gpu["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert gpu["containers"][0]["image"].startswith("localhost/seedbed-learner-gpu:")
    assert "--set=learner.device=gpu" in gpu["containers"][0]["args"]
    tpu = pods("gke-tpu")["pong-learner"]
    assert tpu["containers"][0]["image"].startswith("localhost/seedbed-learner-jax-tpu:")
    assert tpu["containers"][0]["resources"]["limits"]["google.com/tpu"] == 1
    # A profile goes with an accelerator of another one, and with another experiment.
    both = pods("gke-autopilot", read(PROFILES["gke-standard-gpu"]))["pong-learner"]
    assert both["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1


FAMILIES = {"football": "football-11-vs-11", "lab": "lab-vtrace", "vizdoom": "vizdoom-basic"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_of_environments_goes_over_a_cluster(family: str) -> None:
    """The actors alone have its image; what learners cannot evaluate, they leave out."""
    text = (ROOT / "experiments" / f"{FAMILIES[family]}.yaml").read_text()
    values = merged(read(PROFILES["gke-autopilot"]), read(CHART / "profiles" / f"{family}.yaml"))
    rendered = render({**values, "experimentFile": text})
    actor, learner = (rendered.pods()[f"pong-{role}"]["spec"] for role in ("actor", "learner"))
    assert actor["containers"][0]["image"].startswith(f"localhost/seedbed-actor-{family}:")
    assert f"-{family}:" not in learner["containers"][0]["image"]
    stored = rendered.one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    experiment = parse_experiment(stored)
    assert experiment.environment.family == family
    assert (experiment.evaluation.every_frames, experiment.evaluation.at_end) == (0, False)
    if family == "lab":
        (mount,) = (m for m in actor["containers"][0]["volumeMounts"] if m["name"] == "levels")
        assert mount["mountPath"] == experiment.environment.lab.level_cache
        (volume,) = (v for v in actor["volumes"] if v["name"] == "levels")
        assert volume["persistentVolumeClaim"] == {"claimName": "lab-levels"}


def test_compute_classes_fall_back() -> None:
    for name, path in CLASSES.items():
        made = read(path)
        assert (made["kind"], made["metadata"]["name"]) == ("ComputeClass", name)
        tiers = [priority["spot"] for priority in made["spec"]["priorities"]]
        assert set(tiers) == {True, False}
        assert tiers[0] is (name == "spot-first")
    actor = pods("gke-autopilot", {"actor": {"spot": False, "pod": {"computeClass": "spot-first"}}})
    assert actor["pong-actor"]["nodeSelector"] == {"cloud.google.com/compute-class": "spot-first"}
    assert read(CLASSES["spot-first"])["spec"]["activeMigration"]["optimizeRulePriority"]


@pytest.mark.parametrize(
    ("profile", "kind"), [("gke-standard-gpu", "learner-l4"), ("gke-tpu", "learner-v6e")]
)
def test_a_class_has_the_accelerator_of_its_profile(profile: str, kind: str) -> None:
    wanted = read(PROFILES[profile])["learner"]["accelerator"]
    for priority in read(CLASSES[kind])["spec"]["priorities"]:
        made = priority[wanted["type"]]
        assert made["type"] == wanted["name"]
        assert made["count"] == wanted.get("count", 1)
        assert made.get("topology") == wanted.get("topology")
