"""Processes of several learners with their actors."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bench.child import ROOT
from bench.command import START_S, TrainingRun
from seedbed.runs.layout import learner_directory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.telemetry.energy import EnergyStats, frames_per_kilojoule
from seedbed.telemetry.status import read_status

MEASURED = (
    "env_frames",
    "updates",
    "gossip_seconds",
    "gossip_wait_seconds",
    "gossip_mixes",
    "gossip_sent_bytes",
    "gossip_superseded",
)


def shipped(name: str, simulators: int) -> dict[str, Any]:
    """Return an experiment of `experiments/`, without its stop conditions.

    Args:
        name: Of the file.
        simulators: Environments of each learner, all of them in every batch.
    """
    tree: dict[str, Any] = yaml.safe_load((ROOT / "experiments" / name).read_text())
    del tree["stop"]
    tree["actor"]["envs_per_group"] = simulators // tree["actor"]["groups"]
    tree["learner"]["batch_size"] = simulators
    return tree


class LearnerProcesses:
    """One process `seedbed train --rank R` for each learner, in one folder.

    Args:
        folder: Made for the run directories and logs.
        experiment: Experiment as YAML gives it, without the section `gossip`.
        count: Number of learners.
        first: More arguments of the first learner.
        gossip: Further settings of the section `gossip`.
    """

    def __init__(
        self,
        folder: Path,
        experiment: Mapping[str, Any],
        count: int,
        *first: str,
        **gossip: Any,
    ) -> None:
        folder.mkdir(parents=True)
        sockets = [f"unix:{folder}/{rank}.sock" for rank in range(count)]
        tree = {
            **experiment,
            "gossip": {"replicas": count, "addresses": sockets, **gossip},
            "evaluation": {"at_end": False},
            "logging": {"interval_s": 1.0},
        }
        path = folder / "experiment.yaml"
        path.write_text(yaml.safe_dump(tree))
        self._directories = [learner_directory(folder, rank) for rank in range(count)]
        # What a process of a run starts may be one of its parts.
        parent = ("--exit-with-parent", str(os.getpid()))
        self._runs = [
            TrainingRun(
                str(path), directory, "--rank", str(rank), *parent, *(() if rank else first)
            )
            for rank, directory in enumerate(self._directories)
        ]

    def measure(
        self, warm_up_s: float, window_s: float, cpu_watts: float = 0.0
    ) -> dict[str, float]:
        """Return how much the counters of all learners grew a second, and frames a kilojoule.

        Args:
            warm_up_s: Time between the first updates of all learners and the window.
            window_s: Length of the window.
            cpu_watts: Power of a busy vCPU, on a machine without energy counters.
        """
        deadline = time.monotonic() + START_S
        while any(status.get("updates", 0) < 5 for status in self._statuses()):
            if time.monotonic() > deadline:
                raise SeedbedError(
                    ExitCode.INTERNAL, f"no five updates of all within {START_S:g} s"
                )
            time.sleep(0.2)
        time.sleep(warm_up_s)
        first, energy = self._statuses(), EnergyStats(cpu_watts)
        time.sleep(window_s)
        pairs = list(zip(first, self._statuses(), strict=True))
        frames = sum(b["env_frames"] - a["env_frames"] for a, b in pairs)
        joules = energy.totals().get("joules")
        return {
            "frames_per_kilojoule": frames_per_kilojoule(frames, joules) or 0.0,
        } | {
            name: sum((b[name] - a[name]) / (b["time"] - a["time"]) for a, b in pairs)
            for name in (*MEASURED, "training_s")
        }

    def _statuses(self) -> list[dict[str, float]]:
        """Return the newest numbers of each learner; empty before the first ones."""
        found = []
        for run, directory in zip(self._runs, self._directories, strict=True):
            run.check()
            try:
                found.append(_totals(read_status(directory)))
            except (OSError, ValueError):
                found.append({})
        return found

    @property
    def over(self) -> bool:
        """Return whether all learners have ended by themselves, or one has failed."""
        codes = [run.exit_code for run in self._runs]
        return any(codes) or None not in codes

    def summaries(self) -> list[dict[str, Any]]:
        """Return what each learner printed at its end.

        Raises:
            SeedbedError: A learner failed, or has not ended.
        """
        return [run.printed() for run in self._runs]

    def __enter__(self) -> "LearnerProcesses":
        return self

    def __exit__(self, *error: object) -> None:
        for run in self._runs:
            run.terminate()
        for run in self._runs:
            run.__exit__(*error)


def _totals(status: Mapping[str, Any]) -> dict[str, float]:
    numbers = {**status["numbers"], **status["counters"]}
    return {
        **{name: float(numbers.get(name) or 0) for name in MEASURED},
        "time": status["time"],
        # Busy seconds of training, as a total of its steps.
        "training_s": numbers["updates"] * (numbers.get("train_step_ms_p50") or 0) / 1000,
    }
