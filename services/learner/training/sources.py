"""Batch sources: where training batches come from, for agents with and without replay."""

import queue
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from seedbed.backends.protocol import Backend
from seedbed.backends.trainer import Trainer
from seedbed.gossip.exchange import ParameterExchange
from seedbed.services.learner.unrolls.batches import BatchBuilder, TrainingBatch
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.telemetry.busy import BusyClock

# Longest wait of the prefetch thread for one thing while it could do another, in seconds.
TURN_S = 0.005


class BatchSource(Protocol):
    """Source of training batches: unrolls, a replay buffer, or a replay buffer on the device.

    The prefetch thread calls the methods down to `close`, the training thread the others. A method
    that returns at once here is for the sources that need it.
    """

    def may_prefetch(self) -> bool:
        """Return whether the next batch needs no further unroll."""
        return False

    def wait_until_insertable(self, busy: BusyClock, stopping: threading.Event) -> bool:
        """Return whether an unroll may be inserted, after a short wait if it may not.

        Raises:
            SeedbedError: the replay buffer has failed.
        """

    def insert(self, unroll: Any) -> int:
        """Take what a session has completed.

        Args:
            unroll: a `SessionUnroll`, or a `SequenceChunk` for replay.

        Returns:
            The steps of it that went into replay.
        """

    def prefetch(self, busy: BusyClock, stopping: threading.Event) -> None:
        """Build the next batch, if one is due, and wait until training has room for it.

        Raises:
            SeedbedError: the replay buffer has failed.
        """
        return

    def close(self) -> None:
        """Release what the prefetch thread alone has used. Called once, when it ends."""
        return

    def compile_ahead(self) -> None:
        """Compile the update before the first batch, where the sizes of a batch are known."""
        return

    def next_batch(self, timeout_s: float) -> TrainingBatch | None:
        """Return the next batch, or None after `timeout_s`."""

    def passes(self, batch: TrainingBatch) -> Iterator[Iterator[TrainingBatch]]:
        """Yield, pass after pass, the parts of a batch that make an update each.

        Args:
            batch: the batch that `next_batch` returned.
        """
        yield iter((batch,))

    def train_step(
        self, batch: TrainingBatch, exchange: ParameterExchange | None
    ) -> dict[str, Any]:
        """Make one update, and return its numbers by name, on the device.

        Args:
            batch: a part of a batch, as `passes` yields it.
            exchange: exchanges parameters or gradients with peers; None without peers.

        Raises:
            SeedbedError: as `ParameterExchange.step`.
            ShuttingDown: the learner is to end.
        """

    def on_trained(self, batch: TrainingBatch, numbers: Mapping[str, NDArray[Any]]) -> None:
        """Take what an update has made, once its parameters are published.

        Args:
            batch: the batch of the update.
            numbers: what `train_step` returned, on the host, of any shape. The update was skipped
                if its `gradient_norm` is not finite.
        """
        return

    def host_arrays(self, batch: TrainingBatch) -> dict[str, NDArray[Any]]:
        """Return the arrays on the host of the batch that `train_step` has just had."""
        return batch.arrays

    def pending_steps(self) -> int:
        """Return the steps that never were trained on. Both threads have ended."""

    def sampler_state(self) -> dict[str, Any] | None:
        """Return the state of the random numbers that draw batches, as JSON; None without any."""
        return None

    def resume_sampler(self, state: dict[str, Any] | None, updates: int) -> None:
        """Go on with the random numbers of a checkpoint, before the first batch.

        Args:
            state: as `sampler_state`; None where the checkpoint has none.
            updates: updates of the checkpoint.
        """
        return


class PrefetchedSource(BatchSource):
    """Base of the sources whose batches are built on the host, one ahead of training."""

    def __init__(self, trainer: Trainer, backend: Backend) -> None:
        self._trainer = trainer
        self._backend = backend
        self._ready: queue.Queue[TrainingBatch] = queue.Queue(maxsize=1)

    @abstractmethod
    def prepare(self, timeout_s: float) -> TrainingBatch | None:
        """Return the next batch, copied to the device, or None after `timeout_s`."""

    @override
    def prefetch(self, busy: BusyClock, stopping: threading.Event) -> None:
        # A second batch ahead would only be older when its turn comes.
        with self._ready.not_full:
            if self._ready.queue:
                with busy.blocked("training is busy"):
                    self._ready.not_full.wait(TURN_S)
            if self._ready.queue:
                return
        with busy:
            batch = self.prepare(TURN_S)
        if batch is not None:
            self._ready.put(batch)  # at once, because nothing else puts

    def to_device(self, batch: TrainingBatch) -> TrainingBatch:
        """Return a batch, once its arrays are on the device, too."""
        batch.on_device = self._backend.to_device(batch.arrays)
        return batch

    @override
    def next_batch(self, timeout_s: float) -> TrainingBatch | None:
        try:
            return self._ready.get(timeout=timeout_s)
        except queue.Empty:
            return None

    @override
    def train_step(
        self, batch: TrainingBatch, exchange: ParameterExchange | None
    ) -> dict[str, Any]:
        return (exchange or self._trainer).step(batch.on_device)

    @override
    def pending_steps(self) -> int:
        steps = 0
        while (batch := self.next_batch(0)) is not None:
            steps += batch.steps
        return steps


class OnPolicySource(PrefetchedSource):
    """Source that trains on each batch soon, in the order in which sessions complete unrolls.

    Args:
        trainer: makes the updates.
        backend: copies batches to the device.
        batch_size: B, unrolls of a batch.
        unroll: spec of an unroll.
        passes: passes over each batch.
        minibatches: equal parts of a batch in each pass.
        seed: seed of the parts' unrolls.
    """

    def __init__(
        self,
        trainer: Trainer,
        backend: Backend,
        batch_size: int,
        unroll: UnrollSpec,
        passes: int = 1,
        minibatches: int = 1,
        seed: int = 0,
    ) -> None:
        super().__init__(trainer, backend)
        self._batch_size = batch_size
        self._passes, self._minibatches = passes, minibatches
        self._seed, self._random = seed, np.random.default_rng(seed)
        self._batch_arrays = unroll.batch_arrays(batch_size // minibatches)
        self._builder = BatchBuilder(batch_size)
        self._completed: deque[TrainingBatch] = deque()

    @override
    def compile_ahead(self) -> None:
        self._trainer.compile_step(self._batch_arrays)

    @override
    def may_prefetch(self) -> bool:
        return bool(self._completed)

    @override
    def wait_until_insertable(self, busy: BusyClock, stopping: threading.Event) -> bool:
        return not self._completed

    @override
    def insert(self, unroll: Any) -> int:
        self._completed += self._builder.add(unroll)
        return 0

    @override
    def prepare(self, timeout_s: float) -> TrainingBatch | None:
        if not self._completed:
            return None
        batch = self._completed.popleft()
        # Parts go to the device one by one.
        return batch if self._minibatches > 1 else self.to_device(batch)

    @override
    def resume_sampler(self, state: dict[str, Any] | None, updates: int) -> None:
        self._random = np.random.default_rng((self._seed, updates))

    @override
    def passes(self, batch: TrainingBatch) -> Iterator[Iterator[TrainingBatch]]:
        for _ in range(self._passes):
            if self._minibatches == 1:
                yield iter((batch,))
            else:
                order = self._random.permutation(self._batch_size)
                yield map(batch.minibatch, np.split(order, self._minibatches))

    @override
    def train_step(
        self, batch: TrainingBatch, exchange: ParameterExchange | None
    ) -> dict[str, Any]:
        if batch.on_device is None:
            self.to_device(batch)
        return super().train_step(batch, exchange)

    @override
    def pending_steps(self) -> int:
        completed = sum(batch.steps for batch in self._completed)
        return super().pending_steps() + self._builder.pending_steps + completed
