"""Frames that inference leaves on the device for replay: the same contents, and fewer bytes."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.backends.protocol import Backend
from seedbed.backends.roles import SHARED, Split
from seedbed.config import Experiment, parse_experiment
from seedbed.replay.sequence import SequenceChunk, SequenceSpec
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.sessions.slots import SlotAllocator
from seedbed.services.learner.training import replay_factory
from seedbed.spec import FIRST, ArraySpec, DeviceFrames, EnvironmentSpec
from seedbed.telemetry.replay import ReplaySourceStats
from tests.support.counted_tables import count_bytes

STEPS, SLOTS = 5, 8
FRAME = ArraySpec((36, 36), "uint8")
SPEC = EnvironmentSpec("tests:any", FRAME, 11, 1)


def experiment(backend: Any, *overrides: str) -> Experiment:
    return parse_experiment(
        f"""
        name: kept
        environment: {{id: "tests:any"}}
        agent: r2d2
        r2d2: {{burn_in: 3, n_steps: 2, dueling_units: 16}}
        learner:
          backend: {backend.name}
          network: nature
          lstm_units: 8
          frame_stack: 2
          unroll_length: {STEPS}
          batch_size: 6
          replay: {{storage: device, capacity: 40, min_size: 1, transfer_steps: 30}}
          inference: {{slots: {SLOTS}, max_batch_envs: {SLOTS}}}
        actor: {{envs_per_group: 3}}
        """,
        overrides,
    )


def built_on(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, kept: bool, spec: EnvironmentSpec = SPEC
) -> LearnerComponents:
    """The parts of a learner. The same each time, but for where frames are kept."""
    from seedbed.services.learner.components_factory import build_components

    monkeypatch.setattr(replay_factory, "keeps_frames", lambda *_: kept)
    return build_components(experiment(backend), spec, backend, ReplaySourceStats())


class Actor:
    """A session that is stepped by hand, whose frames follow from a number."""

    def __init__(self, built: LearnerComponents, slots: NDArray[np.int32], number: int) -> None:
        self._random, self.slots = np.random.default_rng(number), slots
        self._spec = built.spec.observation
        self._writer: Any = built.unroll.writer(len(slots))
        self._writer._stream_id = number
        self._first = True

    def step(self) -> SequenceChunk | None:
        """Bring the next step, in memory that the actor uses again."""
        e, random = len(self.slots), self._random
        observation = random.integers(0, 256, (e, *self._spec.shape)).astype(self._spec.dtype)
        flags = np.where(self._first | (random.random(e) < 0.2), FIRST, 0).astype(np.uint8)
        self._first = False
        chunk: SequenceChunk | None = self._writer.add_step(
            observation, random.normal(size=e).astype(np.float32), flags
        )
        observation[:] = 0
        return chunk

    def request(self) -> Any:
        return self._writer.inputs(self.slots)

    def answer(self, outputs: Any, at: int) -> None:
        mine = slice(at, at + len(self.slots))
        behaviour = {name: values[mine] for name, values in outputs.behaviour.items()}
        state = outputs.state_before()[mine] if self._writer.needs_state else None
        self._writer.set_outputs(outputs.action[mine], behaviour, 3, state)


def play(built: LearnerComponents, rounds: int = 60, delay: int = 7) -> int:
    """Sessions that come, go in mid-chunk, and take over slots; chunks wait for many rounds.

    Returns:
        The chunks that were inserted after their session had ended, and its slots had others.
    """
    allocator, policy, random = SlotAllocator(SLOTS), built.inference[0], np.random.default_rng(1)
    params, buffer = built.trainer.params(), built.source.buffer
    actors: list[Actor] = []
    queue: deque[tuple[int, SequenceChunk, Actor]] = deque()
    late = 0
    for number in range(rounds):
        if len(actors) > 1 and random.random() < 0.25:
            left = actors.pop(int(random.integers(len(actors))))
            allocator.free(left.slots)
        while (e := int(random.choice([1, 3]))) <= allocator.available:
            actors.append(Actor(built, allocator.allocate(e), 100 * number + len(actors)))
        # Not all sessions join each batch, so that their chunks end at different times.
        joined = [actor for actor in actors if random.random() < 0.8] or actors[:1]
        for actor in joined:
            if (chunk := actor.step()) is not None:
                queue.append((number, chunk, actor))
        outputs, at = policy.run(params, [actor.request() for actor in joined]), 0
        for actor in joined:
            actor.answer(outputs, at)
            at += len(actor.slots)
        while queue and queue[0][0] + delay <= number:
            _, chunk, actor = queue.popleft()
            buffer.add(chunk)
            late += actor not in actors
    for _, chunk, _ in queue:
        buffer.add(chunk)
    buffer.flush()
    return late


@pytest.mark.backends
@pytest.mark.slow_on_jax
def test_replay_holds_the_same_bit_for_bit(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = []
    for kept in (True, False):
        built = built_on(backend, monkeypatch, kept)
        late = play(built)
        assert late > 3, "no slot was used again while a chunk waited"
        assert built.source.buffer.stats().inserted > 50, "nothing was evicted"
        contents.append(built.source.buffer.tables.read())
    ours, expected = contents
    assert ours.keys() == expected.keys()
    for name in ours.keys() - {"time"}:
        assert ours[name].tobytes() == expected[name].tobytes(), name
    assert len(np.unique(expected["frames"])) == 256


@pytest.mark.slow
def test_floats_of_any_shape_too(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = EnvironmentSpec("tests:any", ArraySpec((36, 36, 1), "float32"), 11, 1)
    frames = []
    for kept in (True, False):
        built = built_on(backend, monkeypatch, kept, spec)
        play(built, rounds=20)
        frames.append(built.source.buffer.tables.read()["frames"])
    assert frames[0].tobytes() == frames[1].tobytes()
    assert frames[0].any()


@pytest.mark.slow
@pytest.mark.backends
def test_frames_go_over_the_bus_once(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of one session's chunks: at inference, at insertion, and at sampling."""
    sent = count_bytes(monkeypatch, backend)
    e, chunks = 4, 8
    of_chunk = e * STEPS * FRAME.row_bytes
    inserted = {}
    for kept in (True, False):
        built = built_on(backend, monkeypatch, kept)
        actor = Actor(built, SlotAllocator(SLOTS).allocate(e), 1)
        params, buffer = built.trainer.params(), built.source.buffer
        sent.clear()
        waiting = []
        for _ in range(chunks * STEPS + 1):
            if (chunk := actor.step()) is not None:
                waiting.append(chunk)
            actor.answer(built.inference[0].run(params, [actor.request()]), 0)
        frames = (chunks * STEPS + 1) * e * FRAME.row_bytes
        # A little more than the frames: flags, rewards, actions, noise and slots.
        assert frames <= sum(sent) < 1.1 * frames
        sent.clear()
        for chunk in waiting:
            buffer.add(chunk)
        buffer.flush()
        inserted[kept] = sum(sent)
        sent.clear()
        if kept:
            built.source.step()
            assert sent == [0], "sampling and training send nothing"
    assert inserted[False] > chunks * of_chunk
    assert inserted[True] < chunks * of_chunk / 20
    print(f"{inserted[False] / chunks:.0f} bytes a chunk before, {inserted[True] / chunks:.0f} now")


@pytest.mark.backends
def test_a_chunk_holds_no_frames_on_the_host(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = built_on(backend, monkeypatch, kept=True)
    actor = Actor(built, SlotAllocator(SLOTS).allocate(2), 1)
    chunk = None
    while chunk is None:
        chunk = actor.step()
        built.inference[0].run(built.trainer.params(), [actor.request()])
    assert isinstance(chunk.frames, DeviceFrames)
    assert chunk.frames.shape == (STEPS, 2, *FRAME.shape)
    assert (chunk.frames.dtype, len(chunk.frames)) == ("uint8", STEPS)


@pytest.mark.parametrize(
    ("overrides", "device", "split", "kept"),
    [
        ([], "gpu:0", SHARED, True),
        ([], "cpu:0", SHARED, False),  # where no bus is
        ([], "gpu:0", Split(1, 1), False),  # replay is on another device than inference
        (["learner.replay.storage=host"], "gpu:0", SHARED, False),
        (["actor.envs_per_group=1", "learner.unroll_length=1"], "gpu:0", SHARED, False),
    ],
)
def test_where_frames_are_kept(overrides: list[str], device: str, split: Split, kept: bool) -> None:
    large = ["learner.unroll_length=80", "learner.inference.slots=64", "actor.envs_per_group=3"]
    config = experiment(SimpleNamespace(name="jax"), *large, *overrides)
    spec = SequenceSpec(FRAME, steps=config.learner.unroll_length)
    backend: Any = SimpleNamespace(split=split, devices=lambda: [device])
    assert replay_factory.keeps_frames(config, spec, backend) == kept
