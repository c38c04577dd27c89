"""Processes of several learners with their actors, each with settings of its own."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from bench.child import failed
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

ROOT = Path(__file__).parents[2]
START_S = 300.0
END_S = 60.0


class LearnerProcesses:
    """One process `seedbed train --rank R` for each learner, in one folder.

    Args:
        folder: Made for the run directories and logs.
        experiment: Experiment as YAML gives it, without the section `gossip`.
        ranks: Keys and values of `--set` for each learner.
        learners: Further settings of the section `gossip`.
    """

    def __init__(
        self,
        folder: Path,
        experiment: Mapping[str, Any],
        ranks: Sequence[Mapping[str, Any]],
        **learners: Any,
    ) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        sockets = [f"unix:{folder}/{rank}.sock" for rank in range(len(ranks))]
        tree = {
            **experiment,
            "gossip": {"replicas": len(ranks), "addresses": sockets, **learners},
            "evaluation": {"at_end": False},
            "logging": {"interval_s": 1.0},
        }
        path = folder / "experiment.yaml"
        path.write_text(yaml.safe_dump(tree))
        self._processes = [self._start(path, rank, settings) for rank, settings in enumerate(ranks)]

    def _start(self, path: Path, rank: int, settings: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "seedbed.cli.main", "train", str(path)]
        command += ["--rank", str(rank), "--run-dir", str(self._folder / f"learner-{rank}")]
        for key, value in settings.items():
            command += ["--set", f"{key}={json.dumps(value)}"]
        with self._log(rank).open("wb") as log, self._output(rank).open("wb") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                process_group=0,
                cwd=ROOT,
            )

    def _log(self, rank: int) -> Path:
        return self._folder / f"{rank}.log"

    def _output(self, rank: int) -> Path:
        return self._folder / f"{rank}.json"

    def statuses(self) -> list[dict[str, Any]]:
        """Return the newest status.json of each learner; empty before the first one.

        Raises:
            SeedbedError: A learner has ended.
        """
        found = []
        for rank, process in enumerate(self._processes):
            if process.poll():
                raise failed(f"learner {rank} ended with {process.returncode}", self._log(rank))
            try:
                path = self._folder / f"learner-{rank}" / "status.json"
                found.append(dict(json.loads(path.read_text())))
            except (OSError, ValueError):
                found.append({})
        return found

    def measure(self, warm_up_s: float, window_s: float) -> list[dict[str, float]]:
        """Return how much the counters of each learner grew a second.

        Args:
            warm_up_s: Time between the first updates of all learners and the window.
            window_s: Length of the window.
        """
        deadline = time.monotonic() + START_S
        while any(status.get("counters", {}).get("updates", 0) < 5 for status in self.statuses()):
            if time.monotonic() > deadline:
                raise SeedbedError(
                    ExitCode.INTERNAL, f"no five updates of all within {START_S:g} s"
                )
            time.sleep(0.2)
        time.sleep(warm_up_s)
        first = self.statuses()
        time.sleep(window_s)
        last = self.statuses()
        grown = []
        for before, after in zip(first, last, strict=True):
            seconds = after["time"] - before["time"]
            grown.append({k: (_of(after, k) - _of(before, k)) / seconds for k in MEASURED})
        return grown

    @property
    def over(self) -> bool:
        """Whether all learners have ended by themselves, or one has failed."""
        codes = [process.poll() for process in self._processes]
        return any(codes) or None not in codes

    def end(self, deadline_s: float) -> list[dict[str, Any]]:
        """Wait until all learners have ended, and return what each of them printed.

        Raises:
            SeedbedError: A learner failed, or took longer than `deadline_s`.
        """
        deadline = time.monotonic() + deadline_s
        for rank, process in enumerate(self._processes):
            try:
                code = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise failed(f"learner {rank} is still there", self._log(rank)) from None
            if code:
                raise failed(f"learner {rank} ended with {code}", self._log(rank))
        return [
            dict(json.loads(self._output(rank).read_text())) for rank in range(len(self._processes))
        ]

    def __enter__(self) -> LearnerProcesses:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.send_signal(signal.SIGKILL)
            process.wait()


MEASURED = (
    "env_frames",
    "updates",
    "gossip_seconds",
    "gossip_wait_seconds",
    "gossip_mixes",
    "gossip_sent_bytes",
    "gossip_superseded",
    "training_s",
)


def _of(status: Mapping[str, Any], name: str) -> float:
    if name == "training_s":  # busy seconds of training, as a total of its steps
        updates = status["counters"]["updates"]
        return float(updates * (status["numbers"].get("train_step_ms_p50") or 0) / 1000)
    if name in status["counters"]:
        return float(status["counters"][name])
    return float(status["numbers"].get(name) or 0)
