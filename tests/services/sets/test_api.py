"""What the controller of a set reads from the objects of the API server."""

from __future__ import annotations

from typing import Any

import pytest

from seedbed.services.sets.api import why_no_node

NOBODY = "0/1 nodes are available: 1 Insufficient cpu."


@pytest.mark.parametrize(
    ("spec", "reason", "message", "why"),
    [
        ({}, "Unschedulable", NOBODY, NOBODY),
        # Kueue: the scheduler's own message names neither the queue nor the gate.
        (
            {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
            "SchedulingGated",
            "Scheduling is blocked due to non-empty scheduling gates",
            "waits in a queue: kueue.x-k8s.io/admission",
        ),
    ],
)
def test_a_pod_without_a_node_has_a_reason(
    spec: dict[str, Any], reason: str, message: str, why: str
) -> None:
    waits = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    assert why_no_node({"spec": spec, "status": {"conditions": [waits]}}) == why
    there = {"type": "PodScheduled", "status": "True"}
    assert not why_no_node({"spec": {}, "status": {"conditions": [there]}})
    assert not why_no_node({"spec": {}}), "nobody has looked at it yet"
