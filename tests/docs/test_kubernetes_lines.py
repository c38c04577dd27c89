"""The pages' lines for Kubernetes work as they are written."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from seedbed.cli import deploy
from seedbed.cli.main import main
from seedbed.config import load_experiment
from seedbed.config.shipped import experiment_file
from seedbed.deploy.chart_values import profile_file
from tests.support.chart import ROOT, run

PAGES = (
    "README.md", "docs/gke.md", "docs/kubernetes.md", "docs/kubernetes-sets.md",
    "helm/seedbed/README.md",
)  # fmt: skip
CONTINUED = re.compile(r"\\\n\s*")
COMMAND = re.compile(r"^    ((?:helm install|seedbed deploy) .*)$", re.MULTILINE)
LINES = [
    pytest.param(shlex.split(line, comments=True), id=f"{page}:{line[:60]}")
    for page in PAGES
    for line in COMMAND.findall(CONTINUED.sub("", (ROOT / page).read_text()))
]


@pytest.mark.parametrize("words", LINES)
def test_a_line_works_as_it_is_written(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    if words[0] == "helm":
        rendered = run("template", *words[2:])
        assert rendered.returncode == 0, rendered.stderr
        return
    parser = argparse.ArgumentParser()
    deploy.add_arguments(parser)
    args = parser.parse_args(words[2:])
    if args.max_learners is not None:
        if args.confirm is not None:  # it ranks what a cluster has measured
            at = words.index("--confirm")
            words = words[:at] + words[at + 2 :]
        assert main([*words[1:], "--dry-run"]) == 0
        return
    experiment = load_experiment(args.experiment)
    profiles = [f"--values={profile_file(args.chart, name)}" for name in args.profile]
    file = f"experimentFile={experiment_file(args.experiment)}"
    rendered = run("template", experiment.name, args.chart, *profiles, f"--set-file={file}")
    assert rendered.returncode == 0, rendered.stderr


def test_each_page_has_such_lines() -> None:
    assert len(LINES) >= 7


def test_the_ten_values_are_those_of_the_charts_page() -> None:
    def ten(page: str) -> list[str]:
        _, _, after = (ROOT / page).read_text().partition("ten values that matter")
        return re.findall(r"^\| `([\w.]+)`", after, re.MULTILINE)[:10]

    assert ten("docs/kubernetes.md") == ten("helm/seedbed/README.md")
