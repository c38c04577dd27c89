"""Points of an offline W&B run, kept until W&B has written all of them.

W&B writes blocks of 32 KiB, and what it has not written is lost where its processes are killed. So
each point is written to the run directory first. The next process removes the unfinished offline
run of W&B, and logs its points again, with their steps: none is missing, and none is there twice.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

POINTS_FILE = "wandb-points.jsonl"
# A step, and values by tag.
Point = tuple[int, dict[str, float]]


class OfflinePoints:
    """The points of one run directory since W&B has last finished a run there.

    Args:
        run_dir: The run directory.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir, self._file = run_dir, run_dir / POINTS_FILE

    def left(self) -> list[Point]:
        """Return what a process that was killed has left, by steps, and remove it from W&B's files.

        What a person has sent to W&B's server unfinished is neither removed nor returned, nor what
        cannot be removed.
        """
        points: dict[int, dict[str, float]] = {}
        is_kept = False
        for line in self._lines():
            if "directory" in line:
                unfinished = self._run_dir / line["directory"]
                if not any(unfinished.glob("*.synced")):
                    shutil.rmtree(unfinished, ignore_errors=True)
                is_kept = unfinished.exists()
                if is_kept:
                    points.clear()
            elif not is_kept:
                points[line["step"]] = line["values"]
        if not points:
            self._file.unlink(missing_ok=True)
        return sorted(points.items())

    def begin(self, directory: Path) -> None:
        """Record where W&B writes its run.

        Args:
            directory: Of W&B's offline run.

        Raises:
            OSError: It cannot be written.
        """
        self._append({"directory": os.path.relpath(directory, self._run_dir)})

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Record a point. One that is recorded again counts once.

        Raises:
            OSError: It cannot be written.
        """
        self._append({"step": step, "values": values})

    def finish(self) -> None:
        """Forget the points: W&B has written them."""
        self._file.unlink(missing_ok=True)

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._file.open("a") as file:
            file.write(f"\n{json.dumps(line)}")  # apart from one that a full volume has cut

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self._file.exists():
            return
        for line in self._file.read_text().splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)
