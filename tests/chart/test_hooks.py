"""What `helm test` and the Jobs of a release do at the end, and what they leave behind."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from seedbed.cli import check_learner
from tests.support.chart import NO_METER, Rendered, render

# Helm gives a hook five minutes, and says nothing when they are over.
HELM_TIMEOUT_S = 300


def arguments(rendered: Rendered) -> list[argparse.Namespace]:
    parser = argparse.ArgumentParser()
    check_learner.add_arguments(parser)
    containers = rendered.pods()["pong-test"]["spec"]["containers"]
    return [parser.parse_args(container["args"]) for container in containers]


@pytest.mark.parametrize("values", [{}, {"learner": {"replicas": 3}}], ids=["one", "three"])
def test_helm_test_reads_the_state_and_ends_before_helm_does(values: dict[str, Any]) -> None:
    rendered = render(values)
    pod = rendered.pods()["pong-test"]["spec"]
    (volume,) = (v for v in pod["volumes"] if v["name"] == "state")
    # As it is when the test runs: a template knows only what it was at the last upgrade.
    assert volume["configMap"] == {"name": "pong-state", "optional": True}
    for container, args in zip(pod["containers"], arguments(rendered), strict=True):
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == "state")
        assert mount["mountPath"] == str(args.state)
        assert args.timeout_s < HELM_TIMEOUT_S


def test_without_a_meter_there_is_no_state() -> None:
    rendered = render(NO_METER)
    assert "state" not in {v["name"] for v in rendered.pods()["pong-test"]["spec"]["volumes"]}
    assert [args.state for args in arguments(rendered)] == [None]


def test_the_test_is_the_only_hook() -> None:
    """What a hook makes is not there for `helm template | kubectl apply` or in Argo's order."""
    hooks = [
        item["metadata"]["name"]
        for item in render({"tls": {"enabled": True}}).all
        if "helm.sh/hook" in item["metadata"].get("annotations", {})
    ]
    assert set(hooks) == {"pong-test"}


def test_hooks_say_what_happened_and_leave_nothing() -> None:
    """Uninstalling deletes no hooks: what a failure leaves would stay for ever."""
    rendered = render()
    annotations = rendered.pods()["pong-test"]["metadata"]["annotations"]
    policy = annotations["helm.sh/hook-delete-policy"].split(",")
    assert set(policy) == {"before-hook-creation", "hook-succeeded", "hook-failed"}
    assert set(annotations["helm.sh/hook-output-log-policy"].split(",")) == {
        "hook-succeeded", "hook-failed"
    }  # fmt: skip
