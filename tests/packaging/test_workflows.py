"""Workflows of the forge: what they may do, and whose code they run."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.support.source_imports import ROOT

WORKFLOWS = {path.stem: path for path in (ROOT / ".github" / "workflows").iterdir()}


def jobs(name: str) -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load(WORKFLOWS[name].read_text())["jobs"])


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_each_action_is_one_commit(name: str) -> None:
    used = re.findall(r"uses: *(\S.*)", WORKFLOWS[name].read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_what_may_write_runs_no_code_of_the_checkout(name: str) -> None:
    given = yaml.safe_load(WORKFLOWS[name].read_text())["permissions"]
    assert set(given.values()) <= {"read"}
    for job in jobs(name).values():
        checks_out = any("actions/checkout@" in step.get("uses", "") for step in job["steps"])
        assert not (checks_out and "write" in job.get("permissions", {}).values())
        for step in job["steps"]:
            if "actions/checkout@" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_every_lock_is_audited_each_week() -> None:
    commands = [step.get("run") for job in jobs("weekly").values() for step in job["steps"]]
    assert "make audit" in commands
    assert "for lock in requirements/*.lock; do" in (ROOT / "tools" / "audit.sh").read_text()
