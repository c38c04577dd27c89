"""A run of several learners on this machine, from its start to its summary."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seedbed.config import Experiment
from seedbed.gossip.topology import make_topology
from seedbed.launch.child_processes import process_environment
from seedbed.launch.learner_processes import LearnerProcesses
from seedbed.launch.learners_view import read_statuses, team_line, team_summary
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.signals import on_stop_signals
from seedbed.telemetry.live_line import LiveLine

log = logging.getLogger(__name__)

_LOOK_S = 0.5


def train_together(
    experiment: Experiment, directory: RunDirectory, arguments: Sequence[str]
) -> dict[str, Any]:
    """Train until all learners have ended, or a signal comes; return the run's summary.

    Args:
        arguments: more of `seedbed train` for each learner.

    Raises:
        SeedbedError: a learner failed in a way that starting it again cannot mend.
    """
    make_topology(experiment.gossip)  # or refuse it before anything starts
    processes = LearnerProcesses(experiment, directory.path, arguments)
    stopping = threading.Event()
    on_stop_signals(lambda _: stopping.set())
    line = LiveLine(sys.stderr)
    processes.start()
    due = time.monotonic()
    try:
        while not processes.over and not stopping.wait(_LOOK_S):
            processes.look()
            if time.monotonic() >= due:
                due = time.monotonic() + experiment.logging.interval_s
                statuses = read_statuses(processes.directories)
                line.show(team_line(statuses, processes.running))
    finally:
        line.close()
        processes.stop()
    found = [processes.summary(rank) for rank in range(processes.count)]
    summaries = [summary for summary in found if summary is not None]
    evaluation = None
    over = not stopping.is_set() and summaries and "dollars" not in summaries[0]["stop_reason"]
    if over and experiment.evaluation.at_end:
        evaluation = _evaluate(experiment, directory.path)
    statuses = read_statuses(processes.directories)
    summary = team_summary(statuses, found, evaluation)
    if over:
        directory.keep_summary(summary)
    return summary


def _evaluate(experiment: Experiment, path: Path) -> dict[str, Any] | None:
    """Play what `gossip.evaluation` says."""
    which = "best" if experiment.gossip.evaluation == "best" else "newest"
    policy = experiment.evaluation.policy
    command = [
        sys.executable, "-m", "seedbed.cli.main", "evaluate", str(path), "--checkpoint", which,
        "--episodes", str(experiment.evaluation.episodes),
        *(("--policy", policy) if policy != "agent" else ()),
    ]  # fmt: skip
    with (path / "logs" / "evaluation.log").open("ab") as errors:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=errors, check=False, env=process_environment()
        )
    if done.returncode:
        log.error("the last evaluation failed with exit code %d: see %s", done.returncode,
                  path / "logs" / "evaluation.log")  # fmt: skip
        return None
    return dict(json.loads(done.stdout))
