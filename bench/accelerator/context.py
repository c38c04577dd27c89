"""What the cases share: sizes, the folder, and the one child that is kept from case to case."""

import os
import time
from pathlib import Path
from typing import Any

from bench.accelerator.sizes import Sizes
from bench.child import ROOT, Child
from bench.command import TrainingRun
from bench.system import ROUND_TRIP
from seedbed.config import load_experiment

LONGEST_S = 480.0  # of an answer
SETTLE_S = 5.0  # of a run, after its first updates and its last environment


class Context:
    """Settings of this call, and the processes of its measurements.

    Only one of them has the device at a time: a library may take all of its memory.

    Args:
        folder: For logs, experiments and run directories; it stays from call to call.
        backend: Of Keras.
        sizes: How large.
    """

    def __init__(self, folder: Path, backend: str, sizes: Sizes) -> None:
        self.folder, self.backend, self.sizes = folder, backend, sizes
        self._child: tuple[dict[str, Any], Child] | None = None

    def ask(self, target: str, method: str, made_with: dict[str, Any], **arguments: Any) -> Any:
        """Call a method of a child; the present child, if it is the one, or a new one.

        Args:
            target: `module:Class`, the module within `bench`.
            method: Name of the method.
            made_with: Arguments of the class.
            arguments: Of the method.
        """
        key = {"target": target, **made_with}
        if self._child is None or self._child[0] != key:
            self.end_child()
            name = target.partition(":")[0].replace(".", "-")
            self._child = key, Child(target, self.folder, name, **made_with)
        try:
            return self._child[1].ask(method, LONGEST_S, **arguments)
        except BaseException:  # of no use any more
            self.end_child()
            raise

    def end_child(self) -> None:
        """End the child, if there is one; the device is free then."""
        if self._child is not None:
            child, self._child = self._child[1], None
            child.__exit__()

    def train(self, experiment: str, name: str, *options: str) -> TrainingRun:
        """Start a run, which ends with this process.

        Args:
            experiment: Path of the experiment.
            name: Of the run directory.
            options: More arguments of `seedbed train`.
        """
        self.end_child()
        parent = ("--exit-with-parent", str(os.getpid()))
        return TrainingRun(experiment, self.folder / name, *parent, *options)

    def rates(self, experiment: str, name: str, window_s: float, *options: str) -> dict[str, Any]:
        """Run for a while; return frames and updates a second of a window, and what was busy.

        Args:
            experiment: Path of the experiment.
            name: Of the run directory, which is begun anew.
            window_s: Of the measurement, once all environments are connected.
            options: More arguments of `seedbed train`.
        """
        began = time.monotonic()
        with self.train(experiment, name, "--restart=overwrite", *options) as run:
            run.wait_for_updates(3)
            # Before, it is the rate of a start: resetting a thousand Atari environments takes long.
            run.wait_for_environments(load_experiment(ROOT / experiment).actor.total_envs)
            start_s = time.monotonic() - began
            time.sleep(min(SETTLE_S, window_s))
            before, after = run.window(window_s)
        seconds = after["read_at"] - before["read_at"]
        numbers = after["numbers"]
        return {
            **{
                f"{name}_per_s": (after["counters"][name] - before["counters"][name]) / seconds
                for name in ("env_frames", "trained_frames", "updates")
            },
            "seconds": seconds,
            "seconds_to_third_update": start_s,
            "busy": {
                key.removeprefix("busy_fraction_"): value
                for key, value in numbers.items()
                if key.startswith("busy_fraction_")
            },
            "batch_environments": numbers.get("batch_environments"),
            **{key: numbers.get(key) for key in ROUND_TRIP},
            "bottleneck": after["bottleneck"],
        }
