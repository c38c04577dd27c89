"""The chart `seedbed-platform`: what a cluster needs once."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.support.chart import ROOT, Rendered, run

CHART = ROOT / "helm" / "seedbed-platform"


def render(values: dict[str, Any] | None = None) -> Rendered:
    answer = run("template", "platform", str(CHART), "--namespace", "monitoring", values=values)
    assert answer.returncode == 0, answer.stderr
    return Rendered(answer.stdout)


def ci(name: str) -> Rendered:
    values: dict[str, Any] = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text())
    return render(values)


def test_the_dashboards_are_those_of_the_repository_and_have_the_sidecars_label() -> None:
    (found,) = render().of("ConfigMap")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    files = {"seedbed.json": "dashboard.json", "seedbed-sets.json": "dashboard-sets.json"}
    assert found["data"].keys() == files.keys()
    uids = set()
    for key, file in files.items():
        made = json.loads(found["data"][key])
        assert made == json.loads((CHART / "files" / file).read_text())
        uids.add(made["uid"])
    assert len(uids) == 2, "Grafana keeps one of those with one uid"


def test_every_runbook_has_the_address_of_one_value() -> None:
    for rendered, url in (
        (ci("all").one("PrometheusRule", "platform-rules"), "https://docs.example.com/seedbed/"),
        (ci("gmp").one("ClusterRules", "platform-rules"), "docs/"),
    ):
        alerts = [rule for group in rendered["spec"]["groups"] for rule in group["rules"]
                  if "alert" in rule]  # fmt: skip
        assert len(alerts) > 20
        for rule in alerts:
            address = rule["annotations"]["runbook_url"]
            assert address == f"{url}runbooks/{rule['alert']}.md"
            of = "set" if rule["alert"].startswith("SeedbedSet") else "experiment"
            assert f"{{{{ $labels.{of} }}}}" in rule["annotations"]["summary"]
    source = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    relative = ci("gmp").one("ClusterRules", "platform-rules")["spec"]
    assert relative == source


def test_prices_classes_and_queues() -> None:
    rendered = ci("all")
    prices = yaml.safe_load(rendered.one("ConfigMap", "platform-prices")["data"]["values.yaml"])
    assert prices == {"cost": {"prices": {"families": {"n2d": {
        "cpu": 0.03, "memory_gib": 0.004, "spot": 0.01}}}}}  # fmt: skip
    (spot,) = rendered.of("ComputeClass")
    last = spot["spec"]["priorities"][-1]
    assert not last["spot"], "a class that cannot fall back leaves actors pending"
    (queue,) = rendered.of("ClusterQueue")
    (group,) = queue["spec"]["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "memory"]
    queues = {item["metadata"]["namespace"] for item in rendered.of("LocalQueue")}
    assert queues == {"rl", "lab"}


def test_a_value_that_does_not_exist_is_refused() -> None:
    answer = run("template", "platform", str(CHART), values={"rules": {"kind": "PrometheusRule"}})
    assert answer.returncode != 0
    assert "kind" in answer.stderr
