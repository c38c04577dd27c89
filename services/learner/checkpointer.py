"""Checkpointer: writes checkpoints when they are due, and measures how long writes have failed."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.checkpoints.store import CheckpointStore, SavedCheckpoint
from seedbed.config.learner import Checkpoint as CheckpointSettings
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.telemetry import Telemetry

log = logging.getLogger(__name__)

Arrays = dict[str, NDArray[Any]]

# Longest wait for the last write, in seconds: a volume that hangs would keep the process.
LAST_S = 600.0
# From the first update to the first checkpoint, in seconds: early minutes are the ones that people
# and Spot machines end.
FIRST_S = 15.0
# Between two tries while writes fail, in seconds; between these as long as they have failed, so
# that a volume which has room again is soon used.
RETRY_FIRST_S, RETRY_MOST_S = 1.0, 30.0
# Tries of the last checkpoint go on so long, in seconds: the process is asked to end.
LAST_TRIES_S = 30.0


class Checkpointer:
    """Requests the trainer's state from the training thread, and writes it in another thread.

    Args:
        settings: `learner.checkpoint` of the experiment.
        store: where checkpoints are written.
        telemetry: receives sizes, times and failures.
        meta: returns what a checkpoint stores besides arrays; JSON.

    Attributes:
        newest: path of the newest checkpoint that this process wrote, or None.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        store: CheckpointStore,
        telemetry: Telemetry,
        meta: Callable[[], dict[str, Any]],
    ) -> None:
        self._settings = settings
        self.store = store
        self._telemetry = telemetry
        self._meta = meta
        self._due = time.monotonic() + settings.every_s
        self._updates_at_start: int | None = telemetry.counters.updates
        self._requested: tuple[Future[Arrays], dict[str, Any]] | None = None
        self._writing: Future[SavedCheckpoint] | None = None
        self._failing_since: float | None = None
        self.newest: str | None = None

    def request(self) -> None:
        """Write a checkpoint soon, before it is due."""
        self._due = time.monotonic()

    @property
    def idle(self) -> bool:
        """Return whether no checkpoint is requested, written or due."""
        busy = self._requested is not None or self._writing is not None
        return not busy and time.monotonic() < self._due

    def poll(self, request_state: Callable[[], Future[Arrays]]) -> None:
        """Advance the checkpoint that is under way, or request one that is due. Never waits.

        Args:
            request_state: requests the trainer's state from the training thread.

        Raises:
            SeedbedError: CHECKPOINT_WRITE, writes have failed for `deadline_s` without one that
                succeeded; DIVERGED; RUN_DIRECTORY, another run has taken the checkpoints' folder
                over.
        """
        if self._updates_at_start not in (None, self._telemetry.counters.updates):
            self._updates_at_start = None
            self._due = min(self._due, time.monotonic() + FIRST_S)
        if self._writing is not None:
            if self._writing.done():
                writing, self._writing = self._writing, None
                self._finish(writing)
        elif self._requested is not None:
            future, meta = self._requested
            if future.done():
                self._requested = None
                self._writing = self._start(future.result(), meta)
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + self._settings.every_s
            # Counters first: a frame that is counted after them is counted again after a resume,
            # and never lost.
            meta = self._meta()
            self._requested = (request_state(), meta)

    def _start(self, arrays: Arrays, meta: dict[str, Any]) -> Future[SavedCheckpoint]:
        """Write in a daemon thread, because a volume that hangs must not keep the process."""
        future: Future[SavedCheckpoint] = Future()

        def write() -> None:
            try:
                future.set_result(self._write(arrays, meta))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=write, name="checkpoint", daemon=True).start()
        return future

    def _write(self, arrays: Arrays, meta: dict[str, Any]) -> SavedCheckpoint:
        for name, array in arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                # An update with a finite loss may do this. Only the next loss would show it.
                raise SeedbedError(
                    ExitCode.DIVERGED,
                    f"{name} holds NaN or infinite numbers at update "
                    f"{meta['counters']['updates']} and is not saved: lower "
                    "learner.optimizer.learning_rate; the newest checkpoint is from before",
                )
        return self.store.save(arrays, meta, meta["counters"]["updates"])

    def _finish(self, writing: Future[SavedCheckpoint]) -> None:
        try:
            saved = writing.result()
        except SeedbedError as error:
            now = time.monotonic()
            failed_s = self._failed_s(error, now)
            deadline_s = self._settings.deadline_s
            if failed_s >= deadline_s:
                raise
            log.error(
                "checkpoint not written, for %.0f s (learner.checkpoint.deadline_s is %g): %s",
                failed_s,
                deadline_s,
                error,
            )
            self._due = now + self._pause_s(failed_s, deadline_s - failed_s)
            return
        self._on_saved(saved)

    def _failed_s(self, error: SeedbedError, now: float) -> float:
        """Count a write that failed; return the seconds since the first of those in a row.

        Args:
            error: why it failed.
            now: Monotonic seconds.

        Raises:
            SeedbedError: `error`, where no other try can help.
        """
        if error.code in (ExitCode.DIVERGED, ExitCode.RUN_DIRECTORY):
            raise error
        self._telemetry.checkpoints.on_checkpoint(0.0, 0, ok=False)
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since

    def _pause_s(self, failed_s: float, left_s: float) -> float:
        """Return the seconds to the next try, of which the last one comes after `left_s`."""
        pause_s = min(failed_s, RETRY_MOST_S, self._settings.every_s)
        return min(max(pause_s, RETRY_FIRST_S), left_s)

    def _on_saved(self, saved: SavedCheckpoint) -> None:
        self._failing_since = None
        self.newest = saved.path
        self._telemetry.checkpoints.on_checkpoint(saved.seconds, saved.bytes, ok=True)

    def save_last(self, arrays: Arrays, finished: str | None) -> None:
        """Write the last checkpoint and wait for it.

        Args:
            arrays: the trainer's state.
            finished: the stop condition that was met, or None.

        Raises:
            SeedbedError: CHECKPOINT_WRITE, after tries of `LAST_TRIES_S`, or one that hangs for
                `LAST_S`; DIVERGED.
        """
        self._write_last(arrays, {**self._meta(), "finished": finished})

    def save_counters(self, updates: int, finished: str) -> None:
        """Write the checkpoint of a resume again, with the counters of now, and wait for it.

        The end of a run that has made no update since: its parameters are as they were.

        Args:
            updates: Number of that checkpoint.
            finished: The stop condition that was met.

        Raises:
            SeedbedError: CHECKPOINT_READ; CHECKPOINT_WRITE, as of `save_last`.
        """
        old = self.store.read(str(updates))
        if old.meta.get("finished") == finished:  # an end that had no evaluation, or no summary
            self.newest = old.path
            return
        now = {
            "counters": self._telemetry.whole_counters().to_json(),
            "telemetry": self._telemetry.to_json(),
            "finished": finished,
        }
        self._write_last(dict(old.arrays), {**old.meta, **now})

    def _write_last(self, arrays: Arrays, meta: dict[str, Any]) -> None:
        """Write a checkpoint and wait for it; after a failure try again, for `LAST_TRIES_S`."""
        if self._writing is not None:
            try:
                self._on_saved(self._wait(self._writing))
            except SeedbedError as error:
                self._failed_s(error, time.monotonic())
                log.error("checkpoint not written: %s", error)
        end = time.monotonic() + LAST_TRIES_S
        while True:
            writing = self._start(arrays, meta)
            try:
                self._on_saved(self._wait(writing))
                return
            except SeedbedError as error:
                now = time.monotonic()
                failed_s = self._failed_s(error, now)
                left_s = min(self._settings.deadline_s - failed_s, end - now)
                if left_s <= 0 or not writing.done():  # it hangs, and the next one would
                    raise
                log.error(
                    "the last checkpoint is not written, and tried again for %.0f s; a second "
                    "signal ends the run at once: %s",
                    left_s,
                    error,
                )
                time.sleep(self._pause_s(failed_s, left_s))

    def _wait(self, writing: Future[SavedCheckpoint]) -> SavedCheckpoint:
        try:
            return writing.result(LAST_S)
        except TimeoutError:
            raise SeedbedError(
                ExitCode.CHECKPOINT_WRITE,
                f"a checkpoint in {self.store.directory} was not written within {LAST_S:g} s: the "
                "volume hangs; the newest one there is from before",
            ) from None
