"""When checkpoints are written, and what happens when they cannot be."""

from __future__ import annotations

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

LAST_S = 600.0  # longest wait for a write at the end: a volume that hangs would keep the process


class Checkpointer:
    """Asks the training thread for its state, writes it in a thread of its own, counts failures.

    Args:
        meta: what a checkpoint keeps besides arrays.
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
        self._asked: tuple[Future[Arrays], dict[str, Any]] | None = None
        self._writing: Future[SavedCheckpoint] | None = None
        self._failures = 0
        self._saved_updates: int | None = None
        self.newest: str | None = None  # path of the newest one that this process wrote

    def request(self) -> None:
        """Write one soon, before it is due."""
        self._due = time.monotonic()

    @property
    def idle(self) -> bool:
        """Whether nothing is being asked for or written, nor due."""
        busy = self._asked is not None or self._writing is not None
        return not busy and time.monotonic() < self._due

    def poll(self, request_state: Callable[[], Future[Arrays]]) -> None:
        """Take the next step of what is under way. Main thread; never waits.

        Raises:
            SeedbedError: CHECKPOINT_WRITE, after `max_failures` in a row; DIVERGED.
        """
        if self._writing is not None:
            if self._writing.done():
                writing, self._writing = self._writing, None
                self._outcome(writing)
        elif self._asked is not None:
            future, meta = self._asked
            if future.done():
                self._asked = None
                self._writing = self._start(future.result(), meta)
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + self._settings.every_s
            # Counters first: a frame counted after them is counted again after a resume, never
            # lost.
            meta = self._meta()
            self._asked = (request_state(), meta)

    def _start(self, arrays: Arrays, meta: dict[str, Any]) -> Future[SavedCheckpoint]:
        """Write in a thread that does not keep the process from ending, should it hang."""
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
                # A step may do this behind a finite loss; the next loss would tell.
                raise SeedbedError(
                    ExitCode.DIVERGED,
                    f"{name} holds NaN or infinite numbers at update "
                    f"{meta['counters']['updates']} and is not saved: lower "
                    "learner.optimizer.learning_rate; the newest checkpoint is from before",
                )
        return self.store.save(arrays, meta, meta["counters"]["updates"])

    def _outcome(self, writing: Future[SavedCheckpoint]) -> None:
        try:
            saved = writing.result()
        except SeedbedError as error:
            if error.code is ExitCode.DIVERGED:
                raise
            self._failures += 1
            self._telemetry.checkpoints.on_checkpoint(0.0, 0, ok=False)
            if self._failures >= self._settings.max_failures:
                raise
            log.error("checkpoint not written (%d of %d failures in a row allowed): %s",
                      self._failures, self._settings.max_failures - 1, error)  # fmt: skip
            self._due = time.monotonic() + min(30.0, self._settings.every_s)
            return
        self._failures = 0
        self.newest = saved.path
        self._telemetry.checkpoints.on_checkpoint(saved.seconds, saved.bytes, ok=True)

    def save_last(self, arrays: Arrays, finished: str | None) -> None:
        """Write the last one and wait for it. `finished` is the stop condition that was met.

        Raises:
            SeedbedError: CHECKPOINT_WRITE, after `LAST_S` too; DIVERGED.
        """
        if self._writing is not None:
            try:
                self._wait(self._writing)
            except SeedbedError as error:
                log.error("checkpoint not written: %s", error)
        saved = self._wait(self._start(arrays, {**self._meta(), "finished": finished}))
        self.newest = saved.path
        self._telemetry.checkpoints.on_checkpoint(saved.seconds, saved.bytes, ok=True)

    def _wait(self, writing: Future[SavedCheckpoint]) -> SavedCheckpoint:
        try:
            return writing.result(LAST_S)
        except TimeoutError:
            raise SeedbedError(
                ExitCode.CHECKPOINT_WRITE,
                f"a checkpoint in {self.store.directory} was not written within {LAST_S:g} s: the "
                "volume hangs; the newest one there is from before",
            ) from None
