"""Alerts and recording rules, by promtool; a runbook page for each alert."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.observability.break_runs import RULES, RUNS, RUNS_MADE
from tests.observability.broken_pods import broken_meter
from tests.support.source_imports import ROOT

HERE = Path(__file__).parent
MADE = {run.name: run for run in RUNS_MADE}
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


# What fires in the runs that tests/observability/break_runs.py broke, and nothing else does.
BROKEN = {
    "healthy": [],
    "replay": [],
    "parked": [],
    "meter-killed": ["SeedbedMeterDown"],
    "full-volume": [
        "SeedbedCheckpointFails",
        "SeedbedCheckpointsNotWritten",
        "SeedbedExitCode",
        "SeedbedLearnerCrashLooping",
        "SeedbedVolumeFull",
    ],
    "diverged": ["SeedbedDiverged", "SeedbedLearnerCrashLooping", "SeedbedUpdatesSkipped"],
    "denied": ["SeedbedMeterFailing"],
    "down": ["SeedbedCertificateExpires", "SeedbedLearnerDown"],
    "killed": ["SeedbedActorsCrashLooping", "SeedbedOutOfMemory"],
    "no-node": ["SeedbedActorsMissing", "SeedbedUnpriced"],
    "peer-lost": ["SeedbedGossipPeerStale"],
    "shards": ["SeedbedOutOfMemory", "SeedbedReplayDamaged", "SeedbedReplayShardDown"],
    "environments-hang": ["SeedbedNoFrames"],
    "training-hangs": ["SeedbedCheckpointOld", "SeedbedExitCode", "SeedbedNoFrames"],
    "hanging-volume": ["SeedbedCheckpointOld"],
    "lag": ["SeedbedPolicyLagHigh"],
    "peer-diverges": ["SeedbedGossipPeerStale", "SeedbedGossipRefused"],
    "idle": ["SeedbedIdle"],
    "last-resort": ["SeedbedLastResortFailing"],
    "pending": ["SeedbedLearnerPending"],
    "set": [],
    "set-refused": ["SeedbedSetStuck"],
    "set-hangs": ["SeedbedSetStuck"],
    "set-silent": ["SeedbedSetControllerSilent"],
    "set-dear": ["SeedbedSetOverForecast"],
    "queue-full": ["SeedbedUnrollQueueFull"],
    "slow": ["SeedbedSlow"],
    "starving": ["SeedbedReplayStarving"],
    "budget": [
        "SeedbedBudgetNearlySpent",
        "SeedbedBudgetTooSmall",
        "SeedbedFinishedSpending",
        "SeedbedSpendAboveBudget",
    ],
}


def alerts() -> list[dict[str, object]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


@pytest.mark.slow_after(1)
@promtool
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", str(RULES)),
        ("test", "rules", "rules.yaml"),
    ],
)
def test_promtool(arguments: tuple[str, ...]) -> None:
    answer = subprocess.run(["promtool", *arguments], cwd=HERE, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@promtool
@pytest.mark.parametrize("run", BROKEN)
def test_what_fires_in_a_run_that_was_really_broken(run: str, tmp_path: Path) -> None:
    series = json.loads((RUNS / f"{run}.json").read_text())
    fired = 'group by (alertname) (last_over_time(ALERTS{alertstate="firing"}[1h]))'
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in BROKEN[run]]
    interval, end = f"{MADE[run].scrape_s:g}s", f"{MADE[run].minutes}m"
    case = {
        "interval": interval,
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": fired, "eval_time": end, "exp_samples": expected}],
    }
    file = tmp_path / "tests.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(RULES)],
                "evaluation_interval": interval,
                "tests": [case],
            }
        )
    )
    answer = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_prometheus_of_the_scrape_annotations_loads_these_rules() -> None:
    path = ROOT / "k8s" / "prometheus.yaml"
    (file,) = yaml.safe_load(path.read_text())["rule_files"]
    assert (path.parent / file).resolve() == RULES


def test_the_meter_of_broken_runs_has_all_its_calls(tmp_path: Path) -> None:
    told = {"learner": [True, True, 1, 137], "learner-1": [True, True, 0, None],
            "actor": [True, False, 0, None]}  # fmt: skip
    (tmp_path / "pods.json").write_text(json.dumps(told))
    meter = broken_meter(str(tmp_path), "1", "0", "x")
    meter.reconcile()
    assert not meter.errors
    assert meter.wanted == {"learner": 2, "actor": 1}
    assert dict(meter.pods) == {"learner": 2}


def test_every_alert_has_a_page_a_test_and_words() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "runbooks").glob("*.md")}
    names = set()
    for rule in alerts():
        name = str(rule["alert"])
        names.add(name)
        annotations = rule["annotations"]
        assert isinstance(annotations, dict)
        assert annotations.keys() == {"summary", "description", "runbook_url"}
        assert annotations["runbook_url"] == f"docs/runbooks/{name}.md"
        broken = any(name in fired for fired in BROKEN.values())
        assert broken, f"no run was really broken for {name}"
    assert names == pages
