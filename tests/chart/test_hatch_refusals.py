"""Values that Helm takes and that no cluster would take as meant: each is refused by a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.chart import refused, render

ATARI = "environment: {id: 'atari:Pong'}\n"


@pytest.mark.parametrize("role", ["learner", "actor", "cost", "replay"])
def test_a_field_that_no_pod_has_is_refused(role: str) -> None:
    values = {role: {"podSpec": {"nodeSelektor": {"a": "b"}}}}
    if role == "replay":
        values |= {"replay": {**values["replay"], "shards": 1}, "experiment": {"agent": "r2d2"}}
    said = refused(values)
    assert f"{role}.podSpec.nodeSelektor" in said
    assert "no field of a pod's spec" in said


def test_fields_that_pods_have_are_merged() -> None:
    own = {"dnsPolicy": "None", "hostUsers": False, "schedulingGates": [{"name": "a"}]}
    spec = render({"actor": {"podSpec": own}}).pods()["pong-actor"]["spec"]
    assert own.items() <= spec.items()


def test_several_learners_do_not_share_a_claim() -> None:
    mine: dict[str, Any] = {"persistence": {"existingClaim": "mine"}}
    said = refused({"learner": {**mine, "replicas": 2}})
    assert "learner.persistence.existingClaim" in said
    assert "learner.replicas is 2" in said
    render({"learner": mine})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (f"{ATARI}---\nagent: r2d2\n", "several documents"),
        (f"{ATARI}agent: vtrace\nagent: a2c\n", "agent is there twice"),
        (f"{ATARI}learner:\n  batch_size: 1\n  # no\n  batch_size: 2\n",
         "learner.batch_size is there twice"),
        (f"{ATARI}actor:\n  groups: 1\nlearner:\n  batch_size: 1\nactor:\n  groups: 2\n",
         "actor is there twice"),
    ],
)  # fmt: skip
def test_a_file_that_says_two_things_is_refused(text: str, part: str) -> None:
    said = refused({"experimentFile": text})
    assert "experimentFile" in said
    assert part in said


def test_a_key_of_two_sections_is_there_once_in_each() -> None:
    text = (
        f"# One\n---\n{ATARI}seed: 1\nactor:\n  groups: 1\n  env:\n    every: 1\nlearner:\n"
        "  batch_size: 1\n  checkpoint:\n    every_s: 1\n  replay:\n    min_size: 2\n"
        "evaluation:\n  at_end: false\n"
    )
    text = text.replace("  env:\n    every: 1\n", "")
    assert render({"experimentFile": text})
