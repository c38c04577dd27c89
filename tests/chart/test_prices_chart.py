"""The cost meter in the chart: prices, the right to read what is priced, the autoscaler."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from seedbed.services.cost.price_table import tables
from seedbed.services.cost.prices import PriceList, Settings
from tests.support.chart import CHART, refused, render

UNPRICED = {
    "experiment": {"stop": {"dollars": 5}, "learner": {"backend": "jax"}},
    "learner": {"accelerator": {"type": "tpu", "name": "tpu7x", "topology": "2x2x1", "count": 4}},
}


def settings(values: dict[str, Any]) -> Settings:
    text = render(values).one("ConfigMap", "pong-cost")["data"]["prices.yaml"]
    return Settings.model_validate(yaml.safe_load(text))


def test_the_meter_reads_its_settings() -> None:
    row = {"accelerator": "tpu7x", "count": 4, "cpus": 224, "memory_gib": 960, "on_demand": 48}
    ours = settings(
        {
            "cost": {
                "prices": {"machines": {"tpu7x-standard-4t": {**row, "spot": 20}}},
            },
            "actor": {"autoscaling": {"type": "price", "maxReplicas": 80}},
        }
    )
    assert PriceList(ours).machines["tpu7x-standard-4t"].on_demand == 48
    assert (ours.autoscaler.enabled, ours.autoscaler.maxReplicas) == (True, 80)
    assert not settings({}).autoscaler.enabled


def test_the_meter_may_list_volumes() -> None:
    rules = render({}).one("Role", "pong-cost")["rules"]
    assert {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["list"]} in rules


def test_an_accelerator_without_a_price_has_no_budget() -> None:
    assert 'no price of learner.accelerator.name "tpu7x"' in refused(UNPRICED)
    priced = {"accelerators": {"tpu7x": {"on_demand": 12, "spot": 6, "host_included": True}}}
    assert render({**UNPRICED, "cost": {"prices": priced}}).one("Role", "pong-cost")
    assert render({"learner": UNPRICED["learner"], "experiment": {"learner": {"backend": "jax"}}})


def test_the_chart_knows_the_accelerators_of_the_table() -> None:
    text = (CHART / "templates" / "_validate-cost.tpl").read_text()
    found = re.search(r'"seedbed.pricedAccelerators" -}}\n(.*)\n', text)
    table = tables()["us-central1-aug-2026"]
    machines = {row.accelerator for row in table.machines.values()}
    assert found is not None
    assert set(json.loads(found[1])) == machines | table.accelerators.keys()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"cost": {"enabled": False}, "actor": {"autoscaling": {"type": "price"}}},
            "the cost meter is what scales",
        ),
        (
            {"actor": {"autoscaling": {"type": "price", "minReplicas": 9, "maxReplicas": 3}}},
            "minReplicas 9 is more than maxReplicas 3",
        ),
    ],
)
def test_an_autoscaler_that_cannot_work_is_refused(values: dict[str, Any], words: str) -> None:
    assert words in refused(values)
