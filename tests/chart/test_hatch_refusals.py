"""Values that Helm takes and that no cluster would take as meant: each is refused by a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.chart import refused, render

ATARI = "environment: {id: 'atari:Pong'}\n"


@pytest.mark.parametrize("role", ["learner", "actor", "cost", "replay"])
def test_a_field_that_no_pod_has_is_refused(role: str) -> None:
    values = {role: {"pod": {"spec": {"nodeSelektor": {"a": "b"}}}}}
    if role == "replay":
        values |= {"replay": {**values["replay"], "shards": 1}, "experiment": {"agent": "r2d2"}}
    said = refused(values)
    assert f"{role}.pod.spec.nodeSelektor" in said
    assert "no field of a pod's spec" in said


def test_fields_that_pods_have_are_merged() -> None:
    own = {"dnsPolicy": "None", "hostUsers": False, "schedulingGates": [{"name": "a"}]}
    spec = render({"actor": {"pod": {"spec": own}}}).pods()["pong-actor"]["spec"]
    assert own.items() <= spec.items()


def test_learners_of_one_claim_have_a_folder_each() -> None:
    shared: dict[str, Any] = {"learner": {"persistence": {"existingClaim": "mine"}, "replicas": 2}}
    container = render(shared).pods()["pong-learner"]["spec"]["containers"][0]
    assert any("/learner-$(SEEDBED_RANK)" in argument for argument in container["args"])


def test_a_file_of_several_documents_is_refused() -> None:
    said = refused({"experimentFile": f"{ATARI}---\nagent: r2d2\n"})
    assert "experimentFile has several documents" in said
    assert render({"experimentFile": f"# One\n---\n{ATARI}seed: 1\n"})
