"""The checkpoints of several learners as one: their average, or the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from seedbed.checkpoints.store import Checkpoint
from seedbed.config.renamed import translate
from seedbed.runtime.exit_codes import ExitCode, SeedbedError


def learner_directory(path: str | Path, rank: int) -> Path:
    """The run directory of one learner of the run at `path`."""
    return Path(path) / f"learner-{rank}"


def learner_directories(path: str | Path) -> list[Path]:
    """Those of all learners, by rank; empty where the run has a single learner. One that a run
    with fewer learners has left behind is none of them.
    """
    if "://" in str(path):
        return []
    found = [
        child
        for child in Path(path).glob("learner-*")
        if child.is_dir() and child.name.removeprefix("learner-").isdigit()
    ]
    count = _count(Path(path))
    ranks = {int(child.name.removeprefix("learner-")): child for child in found}
    return [ranks[rank] for rank in sorted(ranks) if count is None or rank < count]


def _count(path: Path) -> int | None:
    """`gossip.replicas` of the run at `path`; None where nobody says."""
    try:
        stored = yaml.safe_load((path / "experiment.yaml").read_text())
        translate(stored)
        return int(stored["gossip"]["replicas"])
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        return None


def consensus(checkpoints: Sequence[Checkpoint], path: str) -> Checkpoint:
    """The average of all learners' parameters (x̄ of Assran et al. 2019), without an optimizer's
    state. Its counters are of all together; the rest is as the first one has it.

    Raises:
        SeedbedError: CHECKPOINT_READ: they are of different networks.
    """
    first = checkpoints[0]
    arrays: dict[str, NDArray[Any]] = {}
    for name, array in first.arrays.items():
        if not name.startswith("model/"):
            continue
        parts = []
        for checkpoint in checkpoints:
            part = checkpoint.arrays.get(name)
            if part is None or part.shape != array.shape:
                shape = "missing" if part is None else f"of shape {list(part.shape)}"
                raise SeedbedError(
                    ExitCode.CHECKPOINT_READ,
                    f"{name} is of shape {list(array.shape)} in {first.path} and {shape} in "
                    f"{checkpoint.path}: learners of one run have the same network; name one of "
                    "their run directories",
                )
            parts.append(part)
        arrays[name] = np.mean(np.stack(parts), axis=0, dtype=np.float64).astype(array.dtype)
    return Checkpoint(path, arrays, {**first.meta, "counters": _together(checkpoints)})


def best(checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    """That of the learner with the best evaluation; where not all have one, with the best mean
    return of its last episodes.
    """
    all_evaluated = all(c.meta.get("best_evaluation") is not None for c in checkpoints)

    def score(checkpoint: Checkpoint) -> float:
        if all_evaluated:
            return float(checkpoint.meta["best_evaluation"])
        returns = checkpoint.meta.get("telemetry", {}).get("recent_returns") or []
        return float(np.mean(returns[-100:])) if returns else -np.inf

    return max(checkpoints, key=score)


def _together(checkpoints: Sequence[Checkpoint]) -> dict[str, float]:
    """Sums; seconds and updates of the learner that has most of them."""
    counters = [checkpoint.meta["counters"] for checkpoint in checkpoints]
    return {
        name: (max if name in ("seconds", "updates") else sum)(c.get(name, 0) for c in counters)
        for name in counters[0]
    }
