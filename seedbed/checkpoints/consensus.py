"""Checkpoints of several learners as one: the average, or the best of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.checkpoints.format import Checkpoint, CheckpointReadError


def consensus(checkpoints: Sequence[Checkpoint], path: str, shared: bool = False) -> Checkpoint:
    """Average the parameters of all learners (x̄ of Assran et al. 2019).

    The optimizer's state is left out. Counters are of all learners together; the rest of the meta
    is as the first checkpoint has it.

    Args:
        checkpoints: One of each learner.
        path: What the result names as the path that it was read from.
        shared: The first checkpoint holds the shared copy of all learners, which is taken as it
            is.

    Raises:
        SeedbedError: CHECKPOINT_READ: the checkpoints are of different networks.
    """
    first = checkpoints[0]
    arrays: dict[str, NDArray[Any]] = {}
    for name, array in first.arrays.items():
        if not name.startswith("model/"):
            continue
        parts = []
        for checkpoint in checkpoints[:1] if shared else checkpoints:
            part = checkpoint.arrays.get(name)
            if part is None or part.shape != array.shape:
                shape = "missing" if part is None else f"of shape {list(part.shape)}"
                raise CheckpointReadError(
                    f"{name} is of shape {list(array.shape)} in {first.path} and {shape} in "
                    f"{checkpoint.path}: learners of one run have the same network; name one of "
                    "their run directories"
                )
            parts.append(part)
        arrays[name] = np.mean(np.stack(parts), axis=0, dtype=np.float64).astype(array.dtype)
    return Checkpoint(path, arrays, {**first.meta, "counters": _total_counters(checkpoints)})


def best(checkpoints: Sequence[Checkpoint]) -> Checkpoint:
    """Choose the checkpoint of the learner with the best evaluation.

    Where a learner was not evaluated, the best mean return of the last episodes decides.
    """
    all_evaluated = all(c.meta.get("best_evaluation") is not None for c in checkpoints)

    def score(checkpoint: Checkpoint) -> float:
        if all_evaluated:
            return float(checkpoint.meta["best_evaluation"])
        returns = checkpoint.meta.get("telemetry", {}).get("recent_returns") or []
        return float(np.mean(returns[-100:])) if returns else -np.inf

    return max(checkpoints, key=score)


def _total_counters(checkpoints: Sequence[Checkpoint]) -> dict[str, float]:
    """Sum the counters; seconds and updates are of the learner with most of them."""
    counters = [checkpoint.meta["counters"] for checkpoint in checkpoints]
    return {
        name: (max if name in ("seconds", "updates") else sum)(c.get(name, 0) for c in counters)
        for name in counters[0]
    }
