"""Writes what a learner writes into its run directory, by the learner's own classes.

It states each file once its writer has returned: a power cut after that must not undo it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from seedbed.checkpoints.store import CheckpointStore
from seedbed.config import Experiment, parse_experiment
from seedbed.config.load import dump_experiment
from seedbed.runs.directory import RunDirectory, open_run_directory
from seedbed.runs.evaluations import append_evaluation
from seedbed.spec import ArraySpec, EnvironmentSpec
from seedbed.telemetry.progress import ProgressFile
from seedbed.telemetry.status import write_status

SPEC = EnvironmentSpec("CartPole-v1", ArraySpec((4,), "float32"), 2, 1)
RUN = "runs/cartpole"
UPDATES = 4  # of a start


def experiment() -> Experiment:
    return parse_experiment("name: cartpole\nenvironment: {id: CartPole-v1}", ())


def arrays_of(updates: int) -> dict[str, np.ndarray]:
    return {"model/kernel": np.full((40, 40), updates, np.float32)}


def meta_of(updates: int) -> dict[str, Any]:
    return {
        "experiment": dump_experiment(experiment()),
        "spec": SPEC.to_json(),
        "counters": {"updates": updates, "env_frames": updates * 100},
        "finished": None,
    }


def row_of(number: int) -> dict[str, Any]:
    """From the third row on there are more columns."""
    row: dict[str, Any] = {"env_frames": number * 100, "mean_return": number + 0.25}
    return row | ({"loss": number + 0.5} if number > 2 else {})


def evaluation_of(number: int) -> dict[str, Any]:
    name = f"checkpoint-{number:012d}.safetensors"
    return {"env_frames": number * 100, "updates": number, "mean": number + 0.5, "checkpoint": name}


def status_of(number: int) -> Any:
    return {"counters": {"env_frames": number * 100}, "state": "training", "text": "x" * 5000}


def write(root: Path, run: RunDirectory, first: int, stated: Any) -> None:
    """Write `UPDATES` updates, the first one of number `first`."""
    progress = ProgressFile(run.path / "progress.csv")
    store: CheckpointStore = run.store
    for number in range(first, first + UPDATES):
        stated(f"begun {number}")
        progress.append(row_of(number))
        stated(f"row {number}")
        write_status(run.path, status_of(number))
        stated(f"status {number}")
        store.save(arrays_of(number), meta_of(number), number)
        stated(f"checkpoint {number}")
        append_evaluation(run.path, evaluation_of(number))
        stated(f"evaluation {number}")
        if number % 2:
            store.save_best(str(number), number + 0.5)
            stated(f"best {number}")


def main(root: Path) -> None:
    from tests.faults.power import state

    for start in range(2):
        with open_run_directory(root / RUN, experiment()) as run:
            state(root, f"open {start + 1}")
            write(root, run, 1 + UPDATES * start, lambda text: state(root, text))
    # The end of a run.
    with open_run_directory(root / RUN, experiment()) as run:
        run.write_summary({"env_frames": 800, "updates": 8, "stop_reason": "x", "evaluation": None})
        state(root, "summary 1")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
