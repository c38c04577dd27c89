"""Builds the next training batch on the device: from unrolls, or drawn from replay."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from seedbed.runtime.threads import POLL_S
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.training.replay_source import ReplaySource
from seedbed.services.learner.unrolls.batches import BatchBuilder, TrainingBatch
from seedbed.services.learner.unrolls.queue import UnrollQueue
from seedbed.telemetry import Telemetry

if TYPE_CHECKING:
    from seedbed.services.learner.training.fused_replay import FusedReplay


_DRAW_S = 0.005  # how long blocks wait while a batch is being drawn


class PrefetchThread:
    """Builds the next training batch on the device while the current step runs."""

    def __init__(self, queue_: UnrollQueue, batch_size: int, telemetry: Telemetry) -> None:
        self._queue = queue_
        self._builder = BatchBuilder(batch_size)
        self._telemetry = telemetry
        self.ready: queue.Queue[tuple[TrainingBatch, Any]] = queue.Queue(maxsize=1)
        self._dropped_steps = 0  # in batches that training did not take before the end

    def run(self, built: LearnerComponents, stopping: threading.Event) -> None:
        """Until `stopping`."""
        if isinstance(built.experience, ReplaySource):
            try:
                self._replay(built, built.experience, stopping)
            finally:
                built.experience.home.close()
            return
        if built.experience is not None:
            self._bring(built, built.experience, stopping)
            return
        busy = self._telemetry.busy["prefetch"]
        while not stopping.is_set():
            block = self._queue.get(POLL_S)
            if block is None:
                continue
            with busy:
                on_device = list(self.build(built, block))
            for item in on_device:
                with busy.blocked("training is busy"):
                    self._hand_on(item, stopping)

    def _replay(
        self, built: LearnerComponents, experience: ReplaySource, stopping: threading.Event
    ) -> None:
        busy = self._telemetry.busy["prefetch"]
        while not stopping.is_set():
            # Whichever side may go on does; it waits where neither has anything to do.
            wait_s = 0.0 if experience.is_drawing else POLL_S
            waits = self._queue.wait(wait_s)
            if waits and experience.may_insert():
                block = self._queue.get(0)
                if block is not None:
                    with busy:
                        self._insert(built, experience, block)
            elif waits and not experience.is_drawing:
                with busy.blocked("replay takes nothing in"):
                    stopping.wait(_DRAW_S)
            with busy:
                experience.draw()
                batch = experience.take(_DRAW_S)
                item = None
                if batch is not None:
                    item = batch, built.backend.to_device(batch.arrays)
                experience.account()
            if item is not None:
                with busy.blocked("training is busy"):
                    self._hand_on(item, stopping)

    def _bring(
        self, built: LearnerComponents, experience: FusedReplay, stopping: threading.Event
    ) -> None:
        busy = self._telemetry.busy["prefetch"]
        while not stopping.is_set():
            with busy.blocked("training is busy"):
                room = experience.wait_for_room(POLL_S)
            block = self._queue.get(POLL_S) if room else None
            if block is not None:
                with busy:
                    self._insert(built, experience, block)

    def _insert(
        self, built: LearnerComponents, experience: ReplaySource | FusedReplay, block: Any
    ) -> None:
        experience.insert(block)
        self._telemetry.counters.inserted_frames += block.steps * built.spec.action_repeat

    def build(self, built: LearnerComponents, block: Any) -> Iterator[tuple[TrainingBatch, Any]]:
        """The training batches that a block gives rise to, on the host and on the device."""
        experience = built.experience
        if experience is None:
            for batch in self._builder.add(block):
                yield batch, built.backend.to_device(batch.arrays)
            return
        assert isinstance(experience, ReplaySource), "learner.deterministic has no device home"
        self._insert(built, experience, block)
        experience.draw()
        while (drawn := experience.take(POLL_S)) is not None:
            yield drawn, built.backend.to_device(drawn.arrays)
            experience.draw()
        experience.account()

    def _hand_on(self, item: tuple[TrainingBatch, Any], stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                self.ready.put(item, timeout=POLL_S)
                return
            except queue.Full:
                continue
        self._dropped_steps += item[0].steps

    def pending_steps(self) -> int:
        """Steps that were collected and never trained on. After the thread has ended."""
        steps = self._builder.pending_steps + self._dropped_steps
        while not self.ready.empty():
            steps += self.ready.get_nowait()[0].steps
        return steps
