"""The master invariant with replay: what is drawn from a home gives the action values of acting.

Sequences come over the real wire from sessions that come and go, and are drawn from a home so
small that most are evicted again.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedbed.config import Experiment, parse_experiment
from seedbed.packed import ACTION_MASK, PackedSpec
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.training import replay_factory
from seedbed.services.learner.training.replay_source import training_batch
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.spec import ActionSpec
from tests.services.learner.test_master_invariant import (
    DICT,
    check_story,
    collect,
    in_float32,
    recomputation,
)
from tests.support.device_replay import device_sample
from tests.support.pattern_env import ACTIONS, NAME
from tests.support.recording_agent import name_of
from tests.support.shard_process import shards

BACKEND = os.environ.get("SEEDBED_TEST_BACKEND", "tensorflow")
BURN_IN, STEPS = 4, 7

CASES = {
    "mlp-lstm": ("mlp", 16, 1, (6,), "float32"),
    "mlp-lstm-stack": ("mlp", 16, 3, (6,), "float32"),
    "nature-lstm-stack": ("nature", 16, 4, (36, 40), "uint8"),
}


# Agents with action values have no masks.
UNMASKED = PackedSpec.of([entry for entry in DICT.entries if entry.name != ACTION_MASK])


def experiment(
    network: str, lstm: int, stack: int, precision: str = "float32", **replay: Any
) -> Experiment:
    settings = ", ".join(f"{name}: {value}" for name, value in replay.items())
    return parse_experiment(
        f"""
        name: invariant
        environment: {{id: "{NAME}"}}
        agent: tests.support.recording_agent:RecordingR2d2
        agent_options: {{burn_in: {BURN_IN}, epsilon_levels: 4, n_steps: 3, dueling_units: 32}}
        learner:
          backend: {BACKEND}
          precision: {precision}
          network: {network}
          lstm_units: {lstm}
          frame_stack: {stack}
          unroll_length: {STEPS}
          batch_size: 6
          queue_batches: 2
          replay: {{capacity: 60, min_size: 10, ratio: 0.4, {settings}}}
          inference: {{max_wait_ms: 2, slots: 64, max_batch_envs: 16}}
        actor: {{envs_per_group: 4}}
        logging: {{interval_s: 1000}}
        """
    )


@pytest.mark.backends
@pytest.mark.parametrize("case", CASES)
def test_training_computes_what_acting_computed(case: str, tmp_path: Path) -> None:
    network, lstm, stack, shape, dtype = CASES[case]
    config = experiment(network, lstm, stack)
    built, batches, params = collect(config, tmp_path, shape=shape, dtype=dtype)
    check(built, batches, params, stack)
    assert built.source.buffer.stats().inserted > 120, "hardly anything was evicted"


@pytest.mark.slow
@pytest.mark.backends
def test_so_it_does_with_several_arrays(tmp_path: Path) -> None:
    config = experiment("impala_shallow", 16, 2)
    built, batches, params = collect(config, tmp_path, observation=UNMASKED)
    check(built, batches, params, 2)


@pytest.mark.slow
@pytest.mark.backends
def test_so_it_does_in_bfloat16(tmp_path: Path) -> None:
    """Values differ by what rounding changes, and no more."""
    network, lstm, stack, shape, dtype = CASES["nature-lstm-stack"]
    config = experiment(network, lstm, stack, precision="bfloat16")
    built, batches, params = collect(config, tmp_path, shape=shape, dtype=dtype)
    recompute = recomputation(built, params)
    exact = recomputation(built, params, in_float32(config, built))
    q = [recompute(batch) for batch in batches]
    rounding = max(np.abs(of - exact(batch)).max() for of, batch in zip(q, batches, strict=True))
    assert 0 < rounding < 0.1 * np.std(q), "nothing was rounded, or too much to prove anything"
    check(built, batches, params, stack, atol=3 * rounding)


@pytest.mark.slow
@pytest.mark.backends
@pytest.mark.parametrize("kept", [False, True], ids=["sent again", "kept"])
def test_on_the_device_too(kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the host's, but the batches never leave the device: they are drawn to look at them.

    On an accelerator frames are sent once, and two batches are in flight.
    """
    rng = np.random.default_rng(1)

    from seedbed.agents import inference_step
    from seedbed.services.learner.training.fused_replay import FusedReplay

    next_batch = FusedReplay.next_batch

    def drawn(source: FusedReplay, timeout_s: float) -> TrainingBatch | None:
        if next_batch(source, timeout_s) is None:
            return None
        sample = device_sample(source.buffer, rng.random(6))
        source._limiter.on_train()
        return training_batch(sample, STEPS, BURN_IN)

    monkeypatch.setattr(FusedReplay, "next_batch", drawn)
    monkeypatch.setattr(replay_factory, "keeps_frames", lambda *_: kept)
    monkeypatch.setattr(inference_step, "batches_in_flight", lambda _: 2 if kept else 1)
    network, lstm, stack, shape, dtype = CASES["nature-lstm-stack"]
    config = experiment(network, lstm, stack, storage="device", transfer_steps=70)
    built, batches, params = collect(config, tmp_path, shape=shape, dtype=dtype)
    assert type(built.source).__name__ == "FusedReplay"
    assert built.unroll.keeps_frames == kept
    check(built, batches, params, stack)
    assert built.source.buffer.stats().inserted > 120, "hardly anything was evicted"


@pytest.mark.backends
@pytest.mark.slow
def test_from_shards_that_are_killed(tmp_path: Path) -> None:
    """Two shards; each is killed in mid-run, with -9, and comes back with what it held."""
    stopping = threading.Event()
    with shards(tmp_path, 2, capacity=40, alpha=0.9) as both:

        def kill() -> None:
            while not stopping.wait(0.3):
                for shard in both:
                    shard.kill()
                    shard.start().listening()

        addresses = [shard.address for shard in both]
        config = experiment("impala_shallow", 16, 2, storage="remote", shards=addresses)
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            built, batches, params = collect(config, tmp_path, observation=UNMASKED)
        finally:
            stopping.set()
            killer.join()
        assert max(shard._starts for shard in both) > 1
    check(built, batches, params, 2)


def check(
    built: LearnerComponents,
    batches: list[TrainingBatch],
    params: Any,
    stack: int,
    atol: float = 1e-4,
) -> None:
    cut, burnt = 0, 0.0
    recompute = recomputation(built, params)
    for batch in batches:
        arrays = batch.arrays
        q = recompute(batch)
        for b in range(q.shape[1]):
            name = name_of(arrays["reward"][:, b], arrays["action"][:, b])
            chosen, best = built.agent.acted[name]
            drawn = np.take_along_axis(q[:-1, b], arrays["action"][:, b, None], 1)[:, 0]
            # Every row, burn-in and finished ones too: stricter than the unmasked ones.
            np.testing.assert_allclose(drawn, chosen[:-1], atol=atol, rtol=0)
            np.testing.assert_allclose(q[:, b].max(-1), best, atol=atol, rtol=0)
        assert q.std() > 1e-3, "values that ignore the input prove nothing"
        space = ActionSpec.discrete(ACTIONS)
        cut += check_story(arrays, np.ones(q.shape[1], bool), stack - 1, space)
        burnt += float(np.abs(arrays["state"]).sum())
    assert cut > 0, "no episode ended: the patterns prove too little"
    assert burnt > 0, "no sequence began with a recurrent state"
