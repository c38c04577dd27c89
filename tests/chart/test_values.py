"""Values: their defaults, the experiment of a release, images, labels and the volume."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from seedbed.config import parse_experiment
from seedbed.services.cost.price_table import tables
from tests.support.chart import (
    CHART,
    SHARDS,
    merged,
    refused,
    render,
    values_of,
)


def test_the_defaults_are_what_the_schema_says() -> None:
    from tools.chart_values import Values

    given = values_of(CHART / "values.yaml")
    wanted = Values().model_dump(by_alias=True, exclude_none=True)
    wanted.pop("global")
    for section in ("learner", "actor", "replay", "cost"):
        assert given[section].keys() == wanted[section].keys()
    assert Values.model_validate(given).model_dump() == Values().model_dump()
    assert given.keys() == wanted.keys()
    assert set(tables()) == {"us-central1-aug-2026", "sep-2019"}


def test_the_chart_has_no_more_values_than_a_reader_takes_in() -> None:
    from tools.chart_values import rows

    assert len(rows()) <= 120
    assert len(render().all) <= 20


def test_the_experiment_is_named_after_the_release() -> None:
    text = render().one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    assert parse_experiment(text).name == "pong"
    named = {"experiment": {"name": "other", "environment": {"id": "CartPole-v1"}}}
    text = render(named).one("ConfigMap", "pong-experiment")["data"]["experiment.yaml"]
    assert parse_experiment(text).name == "other"


def test_another_run_on_the_same_volume() -> None:
    values = {"learner": {"run": "second", "initFrom": "pong"}}
    arguments = render(values).pods()["pong-learner"]["spec"]["containers"][0]["args"]
    assert "--run-dir=/runs/second" in arguments
    assert "--init-from=/runs/pong" in arguments


def test_images_by_registry_repository_tag_and_digest() -> None:
    def image(values: dict[str, Any], pod: str) -> str:
        (container,) = render(values).pods()[pod]["spec"]["containers"]
        return str(container["image"])

    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert image({}, "pong-learner") == f"localhost/seedbed-learner:{version}"
    shared = {"image": {"registry": "r.io/p", "tag": "7"}}
    assert image(shared, "pong-cost") == "r.io/p/seedbed-cost:7"
    digest = "sha256:" + "a" * 64
    own = {"actor": {"image": {"registry": "x", "repository": "y", "tag": "1", "digest": digest}}}
    assert image(merged(shared, own), "pong-actor") == f"x/y@{digest}", "a digest wins over a tag"
    assert image(merged(shared, own), "pong-learner") == "r.io/p/seedbed-learner:7"
    assert image({"image": {"registry": ""}}, "pong-actor") == f"seedbed-actor:{version}"
    assert "digest" in refused({"actor": {"image": {"digest": "latest"}}})


def test_labels_for_billing_and_queues() -> None:
    rendered = render(values_of(CHART / "ci" / "labels-values.yaml"))
    for item in rendered.all:
        assert item["metadata"]["labels"]["team"] == "rl", item["kind"]
    for kind, name in (("StatefulSet", "pong-learner"), ("Deployment", "pong-actor")):
        labels = rendered.one(kind, name)["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "research"
    for pod in rendered.pods().values():
        assert pod["metadata"]["labels"]["cost-center"] == "42"
    for name in ("pong-learner", "pong-actor", "pong-cost"):
        labels = rendered.pods()[name]["metadata"]["labels"]
        assert "helm.sh/chart" not in labels, "every bump of the chart would restart it"
        assert "app.kubernetes.io/version" not in labels


@pytest.mark.parametrize("name", ["rates", "1e3", "yes"])
def test_the_objects_of_a_run_name_its_set(name: str) -> None:
    rendered = render({"set": name, "extraLabels": {"seedbed.dev/set": "x", "team": "rl"}})
    job = rendered.one("CronJob", "pong-last-resort")["spec"]["jobTemplate"]["spec"]["template"]
    for item in [*rendered.all, *rendered.pods().values(), job]:
        labels = item["metadata"]["labels"]
        assert (labels["seedbed.dev/set"], labels["team"]) == (name, "rl")
    for workload in (*rendered.of("Deployment"), *rendered.of("StatefulSet")):
        assert "seedbed.dev/set" not in workload["spec"]["selector"]["matchLabels"]
    for container in (
        *rendered.pods()["pong-cost"]["spec"]["containers"],
        *job["spec"]["containers"],
    ):
        assert f"--set={name}" in container["args"]


def test_volumes_outlive_a_set_with_its_name() -> None:
    shards = render(merged(SHARDS, {"set": "1e3"}))
    for kind in ("learner", "replay"):
        (claim,) = shards.one("StatefulSet", f"pong-{kind}")["spec"]["volumeClaimTemplates"]
        assert claim["metadata"]["labels"]["seedbed.dev/set"] == "1e3"


def test_a_release_of_no_set_names_none() -> None:
    assert "seedbed.dev/set" not in render().text
    assert "--set=" not in str(render().pods()["pong-cost"])
    assert "set" in refused({"set": "Two Words"})
    assert "set" in refused({"set": "a" * 54})


def test_storage() -> None:
    assert render().one("StatefulSet", "pong-learner")["spec"]["volumeClaimTemplates"]
    bucket = render(values_of(CHART / "ci" / "bucket-values.yaml"))
    template = bucket.one("StatefulSet", "pong-learner")["spec"]
    assert "volumeClaimTemplates" not in template
    assert template["template"]["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
    account = bucket.one("ServiceAccount", "pong-learner")
    assert "iam.gke.io/gcp-service-account" in account["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("values", "name", "owner"),
    [
        ({}, "pong", "rl/pong/pong"),
        ({"fullnameOverride": "breakout"}, "breakout", "rl/breakout/breakout"),
        ({"learner": {"run": "second"}}, "pong", "rl/pong/second"),
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        {"learner": {"persistence": {"checkpoints": "gs://b/p"}}},
        {"experiment": {"learner": {"checkpoint": {"directory": "gs://b/p/"}}}},
    ],
)
def test_every_release_and_run_has_a_folder_of_its_own_for_checkpoints(
    place: dict[str, Any], values: dict[str, Any], name: str, owner: str
) -> None:
    """Two releases with one value, and two runs of one release."""
    learner = render(merged(place, values)).pods()[f"{name}-learner"]["spec"]["containers"][0]
    assert f"--set=learner.checkpoint.directory=gs://b/p/{owner}" in learner["args"]
    assert f"--owner={owner}" in learner["args"]
    is_first = "second" not in owner
    assert ("--adopt=gs://b/p" in learner["args"]) == is_first


@pytest.mark.parametrize("name", ["y", "no", "on", "true", "null", "2026", "1e3", "0x1f"])
def test_names_that_yaml_reads_as_something_else_stay_names(name: str) -> None:
    """Sweeps are named so: 1e3 is a learning rate."""
    rendered = render(release=name)
    for item in [*rendered.all, *rendered.pods().values()]:
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == name
        assert all(isinstance(text, str) for text in labels.values())
    for pod in rendered.pods().values():
        for container in pod["spec"]["containers"]:
            assert all(isinstance(word, str) for word in container["args"])
    experiment = rendered.one("ConfigMap", f"{name}-experiment")["data"]["experiment.yaml"]
    assert parse_experiment(experiment).name == name


@pytest.mark.parametrize(
    "image", [{"registry": "https://gcr.io/x"}, {"registry": "gcr.io/X"}, {"tag": "A/b"}]
)
def test_an_image_that_no_node_could_pull_is_refused(image: dict[str, str]) -> None:
    (key,) = image
    assert key in refused({"image": image})
    assert key in refused({"actor": {"image": image}})
