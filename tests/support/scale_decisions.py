"""What the chart makes of a workload's number, for every case there is, by the real templates."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.support.chart import CHART, helm

MOST = 3  # a number of replicas goes from 0 to here

# In place of what the templates read of a cluster and of the other values.
_SEEN = """
{{- define "seedbed.fullname" -}}r{{- end -}}
{{- define "seedbed.liveWorkload" -}}{{ .root.case.live | toJson }}{{- end -}}
{{- define "seedbed.state" -}}{{ .case.state | toJson }}{{- end -}}
"""
_CASES = """
{{- $decisions := list -}}
{{- range .Values.cases -}}
{{- $actor := dict "autoscaling" (dict "type" "none") -}}
{{- $cost := dict "enabled" true -}}
{{- $values := dict "replicas" "chart" "paused" .paused "actor" $actor "cost" $cost -}}
{{- $root := dict "Values" $values "Release" (dict "Namespace" "rl") "case" . -}}
{{- $one := dict "root" $root "component" "actor" "kind" "Deployment" "wanted" .wanted -}}
{{- $decisions = append $decisions (include "seedbed.scale" $one | fromJson) -}}
{{- end -}}
decisions: {{ $decisions | toJson }}
"""


class Case(NamedTuple):
    """What an upgrade of one workload depends on.

    Attributes:
        wanted: The number of the values.
        paused: The value `paused`.
        live: Replicas of the live workload; None without one.
        chosen: The number of the values at the upgrade before.
        before: The number to come back with, where the chart has paused; None else.
        state: `finished`, `value`, `hand` (the cause of a pause) or "".
        is_kept: The meter has remembered the numbers.
    """

    wanted: int
    paused: bool
    live: int | None = None
    chosen: int | None = None
    before: int | None = None
    state: str = ""
    is_kept: bool = False

    def to_json(self) -> dict[str, Any]:
        """What the templates find."""
        live: dict[str, Any] = {}
        if self.live is not None:
            notes = {"replicas": self.chosen, "resume-replicas": self.before}
            annotations = {f"seedbed.dev/{k}": str(n) for k, n in notes.items() if n is not None}
            live = {"spec": {"replicas": self.live}, "metadata": {"annotations": annotations}}
        state = {"finished": {"finished": "x"}, "value": {"paused": "value"},
                 "hand": {"paused": "x"}}.get(self.state, {})  # fmt: skip
        if self.is_kept:
            state["resumeReplicas"] = "{}"
        return {"wanted": self.wanted, "paused": self.paused, "live": live, "state": state}


class Decision(NamedTuple):
    """What is rendered: the number, and what the annotations remember."""

    replicas: int
    chosen: int
    before: int | None


def _cases() -> list[Case]:
    numbers = range(MOST + 1)
    first = [Case(wanted, paused) for wanted, paused in product(numbers, (False, True))]
    states = product(("", "finished", "value", "hand"), (False, True))
    later = product(numbers, (False, True), numbers, numbers, (None, *numbers), states)
    return first + [Case(*those, state, is_kept) for *those, (state, is_kept) in later]


@cache
def scale_decisions() -> dict[Case, Decision]:
    """The decision of each case, by one rendering."""
    cases = _cases()
    with TemporaryDirectory() as folder:
        chart = Path(folder)
        (chart / "templates").mkdir()
        (chart / "Chart.yaml").write_text("{apiVersion: v2, name: decisions, version: 0.0.1}")
        shutil.copy(CHART / "templates" / "_replicas.tpl", chart / "templates" / "_a.tpl")
        (chart / "templates" / "_b.tpl").write_text(_SEEN)
        (chart / "templates" / "cases.yaml").write_text(_CASES)
        answer = subprocess.run(
            [helm(), "template", "r", folder, "-f", "-"],
            input=json.dumps({"cases": [case.to_json() for case in cases]}),
            capture_output=True, text=True,
        )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout.partition("decisions: ")[2])
    return dict(zip(cases, map(_decision, found), strict=True))


def _decision(rendered: dict[str, Any]) -> Decision:
    notes = rendered["annotations"]
    before = notes.get("seedbed.dev/resume-replicas")
    chosen = int(notes["seedbed.dev/replicas"])
    return Decision(int(rendered["replicas"]), chosen, None if before is None else int(before))
