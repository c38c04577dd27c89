"""Random numbers that draw batches go on where a checkpoint has left them."""

from __future__ import annotations

import json
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from keras import ops

from seedbed.backends.protocol import Backend
from seedbed.config.learner import Replay
from seedbed.services.learner.training.replay_source import ReplaySource
from seedbed.services.learner.unrolls.batches import TrainingBatch
from tests.services.learner.test_fused_replay import BATCH, built_on

pytestmark = pytest.mark.backends


class Drawn:
    """A buffer that keeps the numbers by which it is asked."""

    spec = SimpleNamespace(steps=5)

    def __init__(self) -> None:
        self.numbers: list[float] = []

    def request_sample(self, uniform: Any) -> Future[Any]:
        self.numbers.extend(uniform)
        return Future()


def source() -> tuple[ReplaySource, Drawn]:
    buffer: Any = Drawn()
    parts: Any = (None, None, None)
    made = ReplaySource(buffer, Replay(prefetch_batches=1, min_size=1), 4, 7, *parts)
    made._limiter = SimpleNamespace(may_train=lambda: True, on_train=lambda: None)  # type: ignore[assignment]
    return made, buffer


def draw(made: ReplaySource, times: int) -> None:
    for _ in range(times):
        made._samples.clear()
        made._request_samples()


def test_a_resumed_replay_draws_what_the_run_would_have_drawn() -> None:
    whole, before, after, other = (source() for _ in range(4))
    draw(whole[0], 6)
    draw(before[0], 4)
    after[0].resume_sampler(json.loads(json.dumps(before[0].sampler_state())), 4)
    draw(after[0], 2)
    assert before[1].numbers + after[1].numbers == whole[1].numbers
    other[0].resume_sampler(None, 4)  # a checkpoint of another source
    draw(other[0], 2)
    assert not set(other[1].numbers) & set(whole[1].numbers)


def test_a_resumed_replay_on_the_device_goes_on_with_the_next_draw(backend: Backend) -> None:
    home = built_on(backend).source.buffer
    uniform = home.tables.compile(
        lambda tables: backend.uniform(1, tables.take("draws", ops.zeros((1,), "int32")), (BATCH,))
    )
    fresh = np.asarray(uniform())
    home.skip_draws(9)
    assert home.tables.read()["draws"].tolist() == [9]
    assert not np.array_equal(np.asarray(uniform()), fresh)


def test_samples_that_wait_at_the_end_are_no_frames_that_were_lost() -> None:
    made, _ = source()
    made._ready.put(TrainingBatch(arrays={}, version=np.zeros(4), steps=20))
    made._dropped_steps = 20  # of one that was built as the learner stopped
    assert made.pending_steps() == 0
