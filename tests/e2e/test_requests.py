"""Memory that pods ask for, against what they use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.release import CHART, Release
from tests.support.chart import merged, values_of

pytestmark = [pytest.mark.e2e, pytest.mark.e2e_all, pytest.mark.timeout(900)]

MIB = 2**20
# Bytes of all processes of the container, without the page cache: of cgroup v1, or v2.
USE = """
import pathlib
root = pathlib.Path("/sys/fs/cgroup")
old = root / "memory" / "memory.stat"
text = (old if old.exists() else root / "memory.stat").read_text()
found = dict(line.split() for line in text.splitlines())
print(found.get("total_rss") or found["anon"])
"""


def requests(values: dict[str, Any]) -> dict[str, int]:
    """MiB by container."""
    of = {"learner": values["learner"], "actor": values["actor"], "cost": values["cost"],
          "evaluation": values["learner"]["evaluation"]}  # fmt: skip
    found = {name: str(part["resources"]["requests"]["memory"]) for name, part in of.items()}
    return {name: int(text[:-2]) * {"Mi": 1, "Gi": 1024}[text[-2:]] for name, text in found.items()}


def test_pods_use_between_a_quarter_and_three_quarters_of_what_they_ask_for(
    namespace: str, tmp_path: Path
) -> None:
    """The chart's defaults, but for cores: one node of two has to hold them."""
    release = Release("sized", namespace, tmp_path)
    few = {"resources": {"requests": {"cpu": "50m"}}}
    release.install({
        "image": {"tag": "dev"},
        "learner": {**few, "persistence": {"size": "500Mi"},
                    "evaluation": {"enabled": True, "episodes": 1, **few}},
        "actor": {**few, "replicas": 1},
        "experiment": {"environment": {"id": "atari:Pong",
                                       "atari": {"max_frames_per_episode": 400}},
                       "logging": {"interval_s": 1},
                       "learner": {"checkpoint": {"every_s": 10}}},
    })  # fmt: skip
    highest: dict[str, int] = {}

    def has_worked() -> bool:
        for component in ("learner", "actor", "cost"):
            for pod in release.pods(component):
                for container in [c["name"] for c in pod["spec"]["containers"]]:
                    said = release.kubectl("exec", pod["metadata"]["name"], "-c", container, "--",
                                           "python", "-c", USE, check=False).strip()  # fmt: skip
                    if said.isdigit():
                        highest[container] = max(highest.get(container, 0), int(said) // MIB)
        status = release.status()
        rows = release.kubectl("exec", "sized-learner-0", "-c", "learner", "--", "sh", "-c",
                               "cat /runs/sized/evaluations.csv || true", check=False)  # fmt: skip
        is_evaluated = any(line[:1].isdigit() for line in rows.splitlines()[1:])
        return bool(status and status["counters"]["updates"] >= 20 and is_evaluated)

    release.until(has_worked, "it has trained, saved and been evaluated")
    defaults = values_of(CHART / "values.yaml")
    laptop = merged(defaults, values_of(CHART / "profiles" / "laptop.yaml"))
    for values in (defaults, laptop):
        for container, asked in requests(values).items():
            used = highest[container]
            assert asked / 4 <= used <= asked * 3 / 4, (container, used, asked, highest)
    release.uninstall()
