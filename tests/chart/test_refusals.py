"""Values that do not fit each other, or are none: each is refused by a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from seedbed.config.schema import NAME_LETTERS
from tests.support.chart import CHART, refused, render, run

TPU = {"type": "tpu", "name": "tpu-v6e-slice", "topology": "1x1"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"learner": {"spott": True}}, ["learner", "spott"]),
        ({"experiment": {"learner": {"lstm_unit": 1}}}, ["lstm_unit"]),
        ({"experiment": {"learner": {"network": "impala"}}}, ["network"]),
        (
            {"experiment": {"learner": {"network": "mlp", "network_options": {"hidden": 3}}}},
            ["network_options.hidden is unknown to network mlp", "units, activation"],
        ),
        (
            {
                "experiment": {"learner": {"backend": "jax"}},
                "learner": {
                    "accelerator": TPU,
                    "pod": {
                        "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
                    },
                },
            },
            ["nvidia-l4", "no node has both"],
        ),
        ({"learner": {"accelerator": {"type": "tpu"}}}, ["name", "topology", "tpu-v6e-slice"]),
        (
            {"learner": {"accelerator": TPU}},
            ["experiment.learner.backend is tensorflow", "jax"],
        ),
        ({"learner": {"accelerator": {"type": "gpu", "topology": "2x2"}}}, ["type: tpu"]),
        ({"learner": {"accelerator": {"name": "nvidia-l4"}}}, ["type is none", "nvidia-l4"]),
        ({"learner": {"persistence": {"type": "gcsfuse"}}}, ["persistence.bucket"]),
        ({"learner": {"persistence": {"bucket": "b"}}}, ["gcsfuse", "pvc"]),
        (
            {"experiment": {"stop": {"dollars": 5}}, "cost": {"enabled": False}},
            ["stop.dollars is 5", "cost.enabled"],
        ),
        ({"tls": {"enabled": True, "actorSecret": "a"}}, ["learnerSecret", "ca.crt"]),
        (
            {"actor": {"autoscaling": {"type": "keda", "minReplicas": 9, "maxReplicas": 3}}},
            ["9", "3"],
        ),
        ({"metrics": {"type": "statsd"}}, ["metrics", "type"]),
        (
            {
                "learner": {
                    "accelerator": {"type": "gpu"},
                    "pod": {"nodeSelector": {"cloud.google.com/gke-tpu-topology": "1x1"}},
                }
            },
            ["no node has both"],
        ),
        (
            {"pod": {"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"}}},
            ["type is none", "idle"],
        ),
        ({"learner": {"persistence": {"checkpoints": "runs"}}}, ["checkpoints"]),
        ({"extraLabels": {"app.kubernetes.io/name": "x"}}, ["extraLabels", "choose another"]),
        ({"actor": None}, ["actor"]),
        (
            {"experiment": {"stop": {"idle_s": 1800}}, "cost": {"enabled": False}},
            ["stop.idle_s is 1800", "cost.enabled is false"],
        ),
        (
            {"experiment": {"stop": {"dollars": 5}}, "learner": {"accelerator": {"type": "gpu"}}},
            ["stop.dollars is 5", "learner.accelerator.name is empty"],
        ),
        (
            {"actor": {"pod": {"extraVolumes": [{"name": "tmp", "emptyDir": {}}]}}},
            ["actor.pod.extraVolumes", "choose another"],
        ),
        ({"fullnameOverride": "UPPER_case"}, ["UPPER_case", "small letters"]),
        ({"learner": {"image": {"repository": "r.io/y:v1"}}}, ["repository"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_a_sentence(
    values: dict[str, Any], words: list[str]
) -> None:
    said = refused(values)
    for word in words:
        assert word in said


def test_names_that_cannot_be_are_refused() -> None:
    said = refused({}, "a" * (NAME_LETTERS + 1))
    assert f"leave room for {NAME_LETTERS}" in said
    assert "seedbed deploy --release NAME" in said
    assert run("template", "a" * NAME_LETTERS, str(CHART)).returncode == 0
    assert "has a dot" in refused({}, "a.b")


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        ({"replay": {"persistence": {"size": "1e9"}}}, True),
        ({"replay": {"persistence": {"size": "1.5Gi"}}}, True),
        ({"replay": {"persistence": {"size": "5Gi "}}}, False),  # the API server's own rule
        ({"replay": {"persistence": {"size": "5Qi"}}}, False),
        ({"learner": {"podDisruptionBudget": {"maxUnavailable": "25%"}}}, True),
        ({"learner": {"podDisruptionBudget": {"maxUnavailable": "some"}}}, False),
        ({"metrics": {"type": "podMonitor", "interval": "1m30s"}}, True),
        ({"metrics": {"interval": "often"}}, False),
        ({"networkPolicy": {"apiServer": {"cidr": "172.16.0.2/32", "ports": [443]}}}, True),
        ({"networkPolicy": {"apiServer": {"cidr": "fd00::1/128"}}}, True),
        ({"networkPolicy": {"apiServer": {"cidr": "172.16.0.2"}}}, False),
        ({"networkPolicy": {"apiServer": {"ports": [70_000]}}}, False),
    ],
)
def test_amounts_addresses_and_durations(values: dict[str, Any], fits: bool) -> None:
    if fits:
        render(values)
    else:
        assert next(iter(values)) in refused(values)
