"""The lines of docs/gke.md: which of them run on any cluster, and why the others do not."""

from __future__ import annotations

import re

from tests.support.source_imports import ROOT

PAGE = ROOT / "docs" / "gke.md"
MOST_LINES = 90
# By their first word.
RUN = ("export", "helm", "kubectl", "ls", "seedbed")
NOT_RUN = {
    "gcloud": "needs a project on Google Cloud",
    "pip": "needs a package index; tests/packaging/test_wheel.py installs the extra",
}
# What has another word on a cluster that is not GKE's, where a line installs something.
REPLACED = {
    " --registry $R": ("", "the cluster has the images, and there is no registry to push to"),
    "--profile gke-autopilot": ("--profile small.yaml", "one small node, and no Spot"),
}


def lines() -> list[str]:
    """Return the lines of the page that a reader types, each whole and without its comment."""
    text = PAGE.read_text()
    assert "```" not in text, "the blocks of the page are indented"
    whole = re.sub(r" *\\\n +", " ", text)
    return [re.sub(r" +# .*", "", line[4:]) for line in whole.splitlines() if line[:4] == " " * 4]


def is_run(line: str) -> bool:
    """Return whether the line runs on any cluster; a line of another program is an error."""
    program = line.split()[0]
    assert program in (*RUN, *NOT_RUN), f"{PAGE.name}: neither run nor on the list: {line}"
    return program in RUN


def on_any_cluster(line: str) -> str:
    """Return the line for a cluster that is not GKE's."""
    if line.startswith("seedbed deploy ") and "--dry-run" not in line:
        for words, (others, _) in REPLACED.items():
            line = line.replace(words, others)
    return line
