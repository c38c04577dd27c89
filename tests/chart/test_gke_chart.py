"""What GKE needs of the chart: images and devices of accelerators, shapes of TPUs, Spot, zones."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, merged, refused, render, run

JAX = {"experiment": {"learner": {"backend": "jax"}}}
L4 = {"learner": {"accelerator": {"type": "gpu", "name": "nvidia-l4"}}}
SHARD = {
    "experiment": {"agent": "dqn", "learner": {"unroll_length": 1}},
    "replay": {"shards": 1},
}


def tpu(name: str, topology: str, count: int) -> dict[str, Any]:
    wanted = {"type": "tpu", "name": name, "topology": topology, "count": count}
    return merged(JAX, {"learner": {"accelerator": wanted}})


def devices(wanted: Any) -> dict[str, Any]:
    """Two L4, and what the experiment says of its devices."""
    learner = {"backend": "jax", "devices": wanted}
    file = yaml.safe_dump({"environment": {"id": "CartPole-v1"}, "learner": learner})
    return merged(L4, {"learner": {"accelerator": {"count": 2}}, "experimentFile": file})


def learner(values: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = render(values).pods()["pong-learner"]["spec"]
    return spec


def container(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = learner(values)["containers"][0]
    return found


@pytest.mark.parametrize(
    ("values", "repository"),
    [
        ({}, "seedbed-learner"),
        (JAX, "seedbed-learner-jax"),
        (L4, "seedbed-learner-gpu"),
        (merged(L4, JAX), "seedbed-learner-jax-gpu"),
        (tpu("tpu-v6e-slice", "1x1", 1), "seedbed-learner-jax-tpu"),
        (merged(L4, {"learner": {"image": {"repository": "mine"}}}), "mine"),
    ],
)
def test_the_image_follows_from_accelerator_and_backend(
    values: dict[str, Any], repository: str
) -> None:
    registry, name = container(values)["image"].split("/")
    assert (registry, name.partition(":")[0]) == ("localhost", repository)
    actor = render(values).pods()["pong-actor"]["spec"]["containers"][0]
    assert actor["image"].startswith("localhost/seedbed-actor:")


def test_an_accelerator_that_was_asked_for_is_used() -> None:
    assert not [arg for arg in container({})["args"] if "learner.device" in arg]
    assert "--set=learner.device=gpu" in container(L4)["args"]
    assert "--set=learner.device=tpu" in container(tpu("tpu-v6e-slice", "1x1", 1))["args"]
    for given in ("gpu", "auto"):
        render(merged(L4, {"experiment": {"learner": {"device": given}}}))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (merged(L4, {"experiment": {"learner": {"device": "cpu"}}}),
         ["learner.device is cpu", "accelerator.type is gpu"]),
        ({"experiment": {"learner": {"device": "gpu"}}},
         ["learner.device is gpu", "accelerator.type is none"]),
        (merged(L4, {"learner": {"accelerator": {"count": 8}}}),
         ["count is 8", "tensorflow, which uses one", "7 would", "count: 1", "backend: jax"]),
        (merged(merged(L4, JAX), {"learner": {"accelerator": {"count": 3}}}),
         ["count is 3", "nvidia-l4", "1 or 2 or 4 or 8"]),
        (devices({"training": 1}), ["0 for inference", "1 together", "has 2", "devices: auto"]),
        (devices({"inference": 1, "training": 3}), ["3 for training, 4 together", "has 2"]),
        ({"learner": {"accelerator": {"count": 2}}}, ["count is 2", "type is none"]),
        (tpu("tpu-v6e-slice", "4x4", 4), ["4x4", "1 host with 4 chips", "learner.hosts: 4",
                                          "count: 4 (ct6e-standard-4t)"]),
        (tpu("tpu-v6e-slice", "4x4", 16), ["4x4", "1 host with 16", "learner.hosts: 4"]),
        (tpu("tpu-v6e-slice", "2x4", 4), ["hosts: 1 with learner.accelerator.count: 8", "or "
                                          "learner.hosts: 2 with learner.accelerator.count: 4"]),
        (tpu("tpu-v6e-slice", "2x3", 6), ["tpu-v6e-slice", "2x3", "1x1", "2x2", "4x4"]),
        (tpu("tpu-v6e-slice", "2x2x1", 4), ["tpu-v6e-slice", "2x2x1", "1x1"]),
        (tpu("tpu-v5p-slice", "2x2", 4), ["tpu-v5p-slice", "2x2", "2x2x1"]),
        (tpu("tpu-v4-podslice", "2x2x2", 4), ["2x2x2", "learner.hosts: 2", "ct4p-hightpu-4t"]),
        (tpu("tpu-v9", "1x1", 1), ["tpu-v9", "tpu-v6e-slice", "tpu7x"]),
        (tpu("tpu-v6e-slice", "1x1", 4), ["1x1", "1 host with 4 chips", "count: 1 "]),
    ],
)  # fmt: skip
def test_accelerators_that_would_stand_idle_are_refused(
    values: dict[str, Any], words: list[str]
) -> None:
    said = refused(values)
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("name", "topology", "count"),
    [
        ("tpu-v5-lite-podslice", "2x4", 8),
        ("tpu-v6e-slice", "2x2", 4),
        ("tpu-v4-podslice", "2x2x1", 4),
        ("tpu-v5p-slice", "2x2x1", 4),
        ("tpu7x", "2x2x1", 4),
    ],
)
def test_all_chips_of_a_host_are_asked_for(name: str, topology: str, count: int) -> None:
    spec = learner(tpu(name, topology, count))
    assert spec["containers"][0]["resources"]["limits"]["google.com/tpu"] == count
    assert spec["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == topology


@pytest.mark.parametrize("wanted", ["auto", {}, {"inference": 1, "training": 1}])
def test_devices_that_are_all_used_are_taken(wanted: Any) -> None:
    assert container(devices(wanted))["resources"]["limits"]["nvidia.com/gpu"] == 2


@pytest.mark.parametrize("role", ["learner", "actor", "replay"])
def test_spot_beside_a_compute_class_is_refused(role: str) -> None:
    """The selector of Spot would keep the class from falling back to nodes on demand."""
    shards = SHARD
    values = merged(shards, {role: {"spot": True, "pod": {"computeClass": "spot-first"}}})
    said = refused(values)
    assert f"{role}.spot" in said
    assert f"{role}.pod.computeClass" in said


def test_a_learner_on_spot_checkpoints_in_time() -> None:
    spot = {"learner": {"spot": True}}
    assert learner(spot)["terminationGracePeriodSeconds"] == 15, "Spot gives no more"
    assert "--set=learner.checkpoint.every_s=60" in container(spot)["args"]
    assert learner({})["terminationGracePeriodSeconds"] == 120
    assert not [arg for arg in container({})["args"] if "every_s" in arg]
    often = merged(spot, {"experiment": {"learner": {"checkpoint": {"every_s": 20}}}})
    assert not [arg for arg in container(often)["args"] if "every_s" in arg]
    rare = merged(spot, {"experiment": {"learner": {"checkpoint": {"every_s": 300}}}})
    said = refused(rare)
    assert "every_s is 300" in said
    assert "learner.spot" in said


def test_actors_prefer_the_learners_zone() -> None:
    """Every observation that crosses a zone is paid for."""
    actor = render().pods()["pong-actor"]["spec"]
    assert "topologySpreadConstraints" not in actor
    (term,) = actor["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "topology.kubernetes.io/zone"
    labels = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert labels["app.kubernetes.io/component"] == "learner"
    assert labels["app.kubernetes.io/instance"] == "pong"
    spread = render({"actor": {"topologySpread": True}}).pods()["pong-actor"]["spec"]
    assert spread["topologySpreadConstraints"][0]["topologyKey"] == "topology.kubernetes.io/zone"
    assert "affinity" not in spread, "either the one or the other"
    shard = render(SHARD).pods()["pong-replay"]
    assert "podAffinity" in shard["spec"]["affinity"], "half a gigabyte a second"
    mine = {"podAntiAffinity": {}, "nodeAffinity": {}}
    given = render({"actor": {"pod": {"affinity": mine}}}).pods()["pong-actor"]["spec"]["affinity"]
    assert given == mine, "the values' own affinity takes the place of the chart's"


def test_addresses_of_either_family() -> None:
    shards = render(SHARD)
    for service in shards.of("Service"):
        assert service["spec"]["ipFamilyPolicy"] == "PreferDualStack"
    for name, port in (("pong-learner", 8470), ("pong-replay", 8480)):
        assert f"--listen=[::]:{port}" in shards.pods()[name]["spec"]["containers"][0]["args"]


def test_no_pod_beside_the_meters_has_a_token_for_the_api() -> None:
    """GKE's driver for buckets asks for a token of its own."""
    bucket = {"learner": {"persistence": {"type": "gcsfuse", "bucket": "b"}}}
    with_token = {
        name
        for name, pod in render(bucket).pods().items()
        if pod["spec"]["automountServiceAccountToken"]
    }
    assert with_token == {"pong-cost"}


def notes(values: dict[str, Any]) -> str:
    """What an installation says at its end."""
    done = run("install", "pong", str(CHART), "--dry-run=client", values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:")[2]


def test_what_costs_more_than_it_must_is_said() -> None:
    bucket = {"learner": {"persistence": {"type": "gcsfuse", "bucket": "b"}}}
    assert "in a bucket" in notes(bucket)
    assert "in a bucket" not in notes({})


def test_a_learner_may_be_roots_for_a_device_of_root() -> None:
    root = {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0}
    values = merged(
        tpu("tpu-v6e-slice", "1x1", 1), {"learner": {"pod": {"spec": {"securityContext": root}}}}
    )
    spec = learner(values)
    assert spec["securityContext"].items() >= root.items()
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = spec["containers"][0]["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert "runAsUser" not in security
