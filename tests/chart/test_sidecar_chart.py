"""Actors in the learner's pod: the CPUs of a node with an accelerator are paid for already."""

from __future__ import annotations

import argparse

import pytest

from seedbed.cli import actor, learner
from tests.support.chart import refused, render

EIGHT = {
    "actor": {
        "sidecar": 8,
        "replicas": 0,
        "resources": {"requests": {"cpu": 0.5, "memory": "384Mi"}, "limits": {"memory": "1Gi"}},
    }
}


def test_actors_are_a_container_of_the_learners_pod() -> None:
    rendered = render(EIGHT)
    assert rendered.one("Deployment", "pong-actor")["spec"]["replicas"] == 0
    spec = rendered.pods()["pong-learner"]["spec"]
    containers = {container["name"]: container for container in spec["containers"]}
    parser = argparse.ArgumentParser()
    actor.add_arguments(parser)
    args = parser.parse_args(containers["actor"]["args"])
    assert args.processes == 8
    assert args.learner == "unix:/run/seedbed/learner.sock"
    parser = argparse.ArgumentParser()
    learner.add_arguments(parser)
    assert parser.parse_args(containers["learner"]["args"]).listen == ["[::]:8470", args.learner]
    assert containers["actor"]["resources"] == {
        "requests": {"cpu": "4", "memory": "3072Mi"},
        "limits": {"memory": "8Gi"},
    }
    for container in containers.values():
        assert {"name": "socket", "mountPath": "/run/seedbed"} in container["volumeMounts"]
    # Each has the token of its own role, and a /tmp of its own.
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    for name, role in (("learner", "learner"), ("actor", "actor")):
        mounts = {x["mountPath"]: x["name"] for x in containers[name]["volumeMounts"]}
        items = volumes[mounts["/etc/seedbed-auth"]]["secret"]["items"]
        assert items == [{"key": role, "path": "tokens"}]
    assert len({x["mountPath"] + x["name"] for c in containers.values()
                for x in c["volumeMounts"] if x["mountPath"] == "/tmp"}) == 2  # fmt: skip


def test_actors_with_networks_of_their_own_have_the_learners_image() -> None:
    for backend, image in (("tensorflow", "seedbed-learner"), ("jax", "seedbed-learner-jax")):
        learner_values = {"backend": backend, "inference": {"location": "actor"}}
        gpu = {"accelerator": {"type": "gpu", "name": "nvidia-l4"}}
        values = EIGHT | {"experiment": {"learner": learner_values}, "learner": gpu}
        rendered = render(values)
        for pod in ("pong-learner", "pong-actor"):
            containers = rendered.pods()[pod]["spec"]["containers"]
            acts = next(container for container in containers if container["name"] == "actor")
            assert acts["image"].rpartition(":")[0] == f"localhost/{image}"
            assert acts["command"] == ["seedbed", "actor"]
    containers = render(EIGHT).pods()["pong-actor"]["spec"]["containers"]
    assert containers[0]["image"].rpartition(":")[0] == "localhost/seedbed-actor"
    assert "command" not in containers[0]


def test_without_it_the_learner_listens_at_its_port_only() -> None:
    spec = render().pods()["pong-learner"]["spec"]
    assert [container["name"] for container in spec["containers"]] == ["learner"]
    assert not [arg for arg in spec["containers"][0]["args"] if "unix:" in arg]


def test_a_socket_has_no_certificates() -> None:
    values = {"actor": {"sidecar": 1}, "tls": {"enabled": True}, "auth": {"enabled": False}}
    with_tls = refused(values | {"cost": {"enabled": False}})
    assert "actor.sidecar is 1" in with_tls
    assert "auth.enabled: true" in with_tls


@pytest.mark.parametrize(
    ("resource", "amount", "wanted"),
    [
        ("cpu", "1500m", "4500m"),
        ("cpu", 2, "6"),
        ("memory", "1.5Gi", "4.5Gi"),
        ("memory", "512Mi", "1536Mi"),
    ],
)
def test_amounts_are_multiplied(resource: str, amount: str | int, wanted: str) -> None:
    values = {
        "actor": {
            "sidecar": 3,
            "resources": {
                "requests": {resource: amount},
                "limits": {resource: "2Gi" if resource == "memory" else 4},
            },
        }
    }
    (_, sidecar) = render(values).pods()["pong-learner"]["spec"]["containers"]
    assert sidecar["resources"]["requests"][resource] == wanted
