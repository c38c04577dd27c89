"""What an upgrade restarts: pods whose templates change, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.chart import (
    SHARDS,
    Rendered,
    merged,
    render,
)


def changed_pods(before: Rendered, after: Rendered) -> set[str]:
    a, b = before.pods(), after.pods()
    return {name for name in a.keys() & b.keys() if a[name] != b[name] and "test" not in name}


@pytest.mark.parametrize(
    ("values", "restarts"),
    [
        ({"actor": {"replicas": 7}}, set()),
        ({"metrics": {"type": "annotations", "labels": {"a": "b"}}}, set()),
        ({"networkPolicy": {"enabled": False}}, set()),
        ({"learner": {"podDisruptionBudget": {"maxUnavailable": "none"}}}, set()),
        ({"pod": {"queueName": "q"}}, {"pong-cost"}),
        ({"cost": {"defaultFamily": "e2"}}, {"pong-cost"}),
        # The learner resumes with it; actors go on.
        ({"experiment": {"learner": {"optimizer": {"learning_rate": 1e-4}}}}, {"pong-learner"}),
        ({"experiment": {"actor": {"envs_per_group": 8}}}, {"pong-learner", "pong-actor"}),
        ({"experiment": {"stop": {"dollars": 3}}}, {"pong-learner", "pong-cost"}),
        ({"experiment": {"stop": {"updates": 3}}}, {"pong-learner", "pong-cost"}),
        ({"replay": {"sequences": 5}}, set()),  # without shards
    ],
)
def test_what_an_upgrade_restarts(values: dict[str, Any], restarts: set[str]) -> None:
    assert changed_pods(render(), render(values)) == restarts


@pytest.mark.parametrize(
    ("values", "restarts"),
    [
        ({"pod": {"queueName": "q"}}, {"kept-cost"}),
        ({"metrics": {"labels": {"a": "b"}}}, set()),
        ({"replay": {"podDisruptionBudget": {"maxUnavailable": "none"}}}, set()),
        ({"replay": {"shards": 3}}, {"kept-learner", "kept-cost"}),
        ({"experiment": {"learner": {"replay": {"ratio": 2}}}}, {"kept-learner"}),
        ({"experiment": {"environment": {"id": "Acrobot-v1"}}}, {"kept-learner", "kept-actor"}),
        (
            {"experiment": {"learner": {"replay": {"priority_exponent": 0.5}}}},
            {"kept-learner", "kept-replay"},
        ),
        ({"replay": {"pod": {"env": [{"name": "A", "value": "b"}]}}}, {"kept-replay"}),
        # Each run has a folder of its own there too.
        ({"learner": {"run": "second"}}, {"kept-learner", "kept-replay", "kept-cost"}),
    ],
)
def test_what_an_upgrade_restarts_with_shards(values: dict[str, Any], restarts: set[str]) -> None:
    assert changed_pods(render(SHARDS, "kept"), render(merged(SHARDS, values), "kept")) == restarts
