"""The fused step against the fed one: sampling, update and priorities, number by number."""

from __future__ import annotations

import numpy as np
import pytest

from seedbed.backends.protocol import Backend
from seedbed.config import parse_experiment
from seedbed.replay.sequence import SequenceSpec
from seedbed.runtime.exit_codes import SeedbedError
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.training.replay_source import training_batch
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.spec import ArraySpec, EnvironmentSpec
from seedbed.telemetry.replay import ReplaySourceStats
from tests.support.device_replay import device_sample
from tests.support.replay_streams import Stream

pytestmark = pytest.mark.backends

SPEC = EnvironmentSpec("tests:any", ArraySpec((36, 36), "uint8"), 11, 1)
BATCH = 6


def built_on(backend: Backend) -> LearnerComponents:
    """A small R2D2 with a filled device home. The same each time."""
    from seedbed.services.learner.components_factory import build_components

    experiment = parse_experiment(
        f"""
        name: fused
        environment: {{id: "tests:any"}}
        agent: r2d2
        r2d2: {{burn_in: 3, n_steps: 2, dueling_units: 16, target_update_period: 2}}
        learner:
          backend: {backend.name}
          network: nature
          lstm_units: 8
          frame_stack: 2
          unroll_length: 5
          batch_size: {BATCH}
          replay: {{storage: device, capacity: 40, min_size: 1, transfer_steps: 1}}
          inference: {{slots: 32, max_batch_envs: 16}}
        actor: {{envs_per_group: 4, groups: 1}}
        """
    )
    built = build_components(experiment, SPEC, backend, ReplaySourceStats())
    stream = Stream(built.unroll.spec, 1, 4)
    rng = np.random.default_rng(3)
    for _ in range(8):
        built.source.buffer.add(stream.chunk(rng.random(4) + 0.1))
    return built


@pytest.mark.slow
def test_fused_is_fed(backend: Backend) -> None:
    fused, fed = built_on(backend), built_on(backend)
    home, other = fused.source.buffer, fed.source.buffer
    for step in range(5):
        outputs = fused.source.step()
        uniform = np.asarray(backend.uniform(1, np.array([step], np.int32), (BATCH, 2))).astype(
            np.float64
        )
        # As `request` takes them: the upper 24 bits, then those below.
        joined = np.floor(uniform[:, 0] * 2**24) / 2**24 + uniform[:, 1] / 2**24
        sample = device_sample(other, joined)
        batch = training_batch(sample, 5, 3)
        expected = fed.trainer.step(backend.to_device(batch.arrays))
        priority = np.asarray(expected.pop("priority"))
        other.update_priorities(sample.keys, priority)
        np.testing.assert_array_equal(np.asarray(outputs["version"]), sample.version)
        for name, value in expected.items():
            np.testing.assert_allclose(
                np.asarray(outputs[name]), np.asarray(value), rtol=1e-4, atol=1e-6,
                err_msg=f"{name} of step {step}",
            )  # fmt: skip
        np.testing.assert_allclose(
            home.tables.read()["scaled_priority"], other.tables.read()["scaled_priority"], rtol=1e-4
        )
        np.testing.assert_allclose(
            home.tables.read()["group_total"], other.tables.read()["group_total"], rtol=1e-4
        )
    for ours, theirs in zip(fused.trainer.params(), fed.trainer.params(), strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), atol=1e-5)
    assert not np.allclose(
        home.tables.read()["scaled_priority"],
        built_on(backend).source.buffer.tables.read()["scaled_priority"],
    )


def test_a_replay_that_never_fills_is_refused() -> None:
    """More environments came than the settings knew of: nothing of a stream is ever whole."""
    from seedbed.config.learner import Replay
    from seedbed.replay.buffer import SequenceBuffer
    from seedbed.services.learner.training.replay_source import ReplaySource

    spec = SequenceSpec(ArraySpec((2,), "float32"), steps=1)
    home = SequenceBuffer(spec, 8, 0.9)
    settings = Replay(capacity=8, min_size=4)
    experience = ReplaySource(home, settings, 2, 1, None, None, ReplaySourceStats())
    stream = Stream(spec, 1, 6)

    def fill() -> None:
        for _ in range(10):
            experience.insert(stream.chunk())

    with pytest.raises(SeedbedError, match=r"only 2 of them can be drawn, below .* 4"):
        fill()


@pytest.mark.slow
def test_sequences_of_a_skipped_update_are_never_drawn_again(backend: Backend) -> None:
    """Parameters stay, also those of the target; the batch can be read; the rest is trained on."""
    built = built_on(backend)
    home, trainer = built.source.buffer, built.trainer
    stream = Stream(built.unroll.spec, 2, 2)
    for _ in range(8):  # the last chunks take all draws, with their predecessors' frames
        chunk = stream.chunk(np.full(2, 1e20, np.float32))
        chunk.reward[:] = np.nan
        home.add(chunk)
    before = {name: array.copy() for name, array in trainer.state().items()}
    skipped = 0
    for _ in range(40):
        batch = built.source.next_batch(0) or training_batch_of_nothing()
        outputs = built.source.train_step(batch, None)
        if np.isfinite(np.asarray(outputs["gradient_norm"])):
            break
        skipped += 1
        for name, array in trainer.state().items():
            assert array.tobytes() == before[name].tobytes(), name
        kept = built.source.host_arrays(batch)
        assert np.isnan(kept["reward"]).any()
        assert kept["observation"].shape[1] == BATCH
        items = np.asarray(built.source._items)
        assert (home.tables.read()["scaled_priority"][items] == 0).all()
    assert 0 < skipped < 40
    for _ in range(5):
        outputs = built.source.step()
        assert np.isfinite(np.asarray(outputs["gradient_norm"]))
    assert int(trainer.state()["optimizer/iteration"]) == 6


def training_batch_of_nothing() -> TrainingBatch:
    return TrainingBatch({}, np.zeros(BATCH), 0)
