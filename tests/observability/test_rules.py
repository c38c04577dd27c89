"""Alerts and recording rules, by promtool; a runbook page for each alert."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import yaml

from tests.support.source_imports import ROOT

RULES = ROOT / "k8s" / "rules"
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def alerts() -> list[dict[str, object]]:
    groups = yaml.safe_load((RULES / "seedbed.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


@promtool
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "seedbed.yaml"),
        ("test", "rules", "tests.yaml"),
    ],
)
def test_promtool(arguments: tuple[str, ...]) -> None:
    answer = subprocess.run(["promtool", *arguments], cwd=RULES, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_every_alert_has_a_page_a_test_and_words() -> None:
    tests = (RULES / "tests.yaml").read_text()
    pages = {path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")}
    names = set()
    for rule in alerts():
        name = str(rule["alert"])
        names.add(name)
        annotations = rule["annotations"]
        assert isinstance(annotations, dict)
        assert annotations.keys() == {"summary", "description", "runbook_url"}
        assert annotations["runbook_url"] == f"docs/runbooks/{name}.md"
        assert f"alertname: {name}\n        exp_alerts" in tests, f"{name} never fires in a test"
    assert names == pages
