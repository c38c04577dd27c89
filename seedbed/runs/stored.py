"""Checkpoints of a run that exists, for reading: nothing is locked or written."""

import logging
from pathlib import Path

from seedbed.checkpoints.consensus import best, consensus
from seedbed.checkpoints.format import Checkpoint, CheckpointReadError
from seedbed.checkpoints.store import CheckpointStore
from seedbed.runs.layout import checkpoint_directory, has_shared_copy, learner_directories
from seedbed.runs.resume import read_stored

log = logging.getLogger(__name__)


def open_store(path: str | Path) -> CheckpointStore:
    """Open the checkpoints of an existing run for reading; nothing is locked or written.

    Args:
        path: A run directory, or any fsspec directory of checkpoints.
    """
    stored = Path(path) / "experiment.yaml"
    if "://" in str(path) or not stored.exists():
        inner = Path(path) / "checkpoints"
        return CheckpointStore(str(inner if "://" not in str(path) and inner.is_dir() else path))
    experiment = read_stored(stored.read_text(), str(stored))
    directory = checkpoint_directory(path, experiment)
    inner = Path(path) / "checkpoints"
    if "://" not in directory and not Path(directory).is_dir() and inner.is_dir():
        directory = str(inner)  # the run was brought here from another machine
    return CheckpointStore(directory)


def read_checkpoint(path: str | Path, name: str = "newest") -> Checkpoint:
    """Read a checkpoint of a run.

    Args:
        path: A run directory, a directory of checkpoints, or a file that ends in `.safetensors`.
        name: As for `CheckpointStore.read`. For a run of several learners, `newest` is the
            average of the newest checkpoints of all learners.

    Raises:
        SeedbedError: CHECKPOINT_READ, with the checkpoints that there are.
    """
    if learners := learner_directories(path):
        return _combine_checkpoints(path, name, learners)
    text = str(path)
    if text.endswith(".safetensors"):
        parent, _, file = text.rpartition("/")
        return CheckpointStore(parent or ".").read(file)
    if Path(text).is_file():
        raise CheckpointReadError(
            f"{text} is a file, and neither a run directory nor a .safetensors file"
        )
    return open_store(path).read(name)


def _combine_checkpoints(path: str | Path, name: str, learners: list[Path]) -> Checkpoint:
    """Read the average, or the best, of the newest checkpoints of several learners.

    A learner without a checkpoint is left out, unless all learners are without one.
    """
    if name not in ("newest", "consensus", "best"):
        raise CheckpointReadError(
            f"{path} has {len(learners)} learners: --checkpoint is newest (the average of all "
            f"newest ones) or best; for {name!r} name one of them, such as {learners[0]}"
        )
    stores = {directory: open_store(directory) for directory in learners}
    ready = [directory for directory, store in stores.items() if store.names()] or learners
    if len(ready) < len(learners):
        missing = ", ".join(each.name for each in learners if each not in ready)
        log.warning("%s: %s has no checkpoint yet, and is left out", path, missing)
    newest = [read_checkpoint(directory) for directory in ready]
    if name == "best":
        chosen = ready[newest.index(best(newest))]
        return read_checkpoint(chosen, "best" if stores[chosen].has_best() else "newest")
    if has_shared_copy(Path(path)):
        return consensus(newest, f"{path} (the shared copy of {ready[0].name})", shared=True)
    return consensus(newest, f"{path} (the average of {len(ready)} learners)")
