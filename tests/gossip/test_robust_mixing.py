"""Robust means of parameters against slow ones in NumPy, on both backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import ops
from numpy.typing import NDArray

from seedbed.backends.protocol import Backend
from seedbed.backends.trainer import Trainer
from seedbed.config.gossip import Gossip
from seedbed.gossip.gossip_log import GossipLog
from seedbed.gossip.robust_mixing import DISTANCES, ClippedMixing, TrimmedMixing
from seedbed.gossip.topology import make_topology
from seedbed.runtime.exit_codes import SeedbedError
from tests.support.gossip_learners import GossipLearner, experiment
from tests.support.waiting import wait_for

D = 3 * 4 + 4 + 4 + 1


@pytest.fixture
def trainer(backend: Backend) -> Trainer:
    layers = [keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)]
    model = keras.Sequential(layers, name="model")

    def loss(params: list[Any], _: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        return ops.mean(ops.square(model.stateless_call(params, [], batch["x"])[0])), {}

    made = backend.trainer(model, keras.optimizers.SGD(0.01), loss, 0.0)
    made.set_params(split(np.linspace(-1, 1, D), made))
    return made


def split(values: Any, trainer: Trainer) -> list[NDArray[np.float32]]:
    shapes = [shape for _, shape in trainer.layout()]
    parts = np.split(np.asarray(values, np.float32), np.cumsum([np.prod(s) for s in shapes])[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def flat(trainer: Trainer) -> NDArray[np.float64]:
    return np.concatenate([np.asarray(array, np.float64).ravel() for array in trainer.params()])


@pytest.mark.backends
def test_differences_are_clipped_to_the_median_of_the_distances_before(trainer: Trainer) -> None:
    mixing, draw = ClippedMixing(trainer), np.random.default_rng(0)
    x, distances, clipped = flat(trainer), list[float](), 0
    for round_ in range(DISTANCES):
        k = 1 + round_ % 3
        messages = [draw.normal(size=D) * draw.uniform(0.1, 3) for _ in range(k)]
        if round_ == 4:
            messages[0] = np.full(D, 1e15)
        weights = [0.8 / k - 0.05 * j for j in range(k)]
        radius = np.median(distances[-DISTANCES:]) if distances else np.inf
        new = x.copy()
        for weight, message in zip(weights, messages, strict=True):
            difference = message.astype(np.float32) - x
            distance = float(np.linalg.norm(difference))
            clipped += distance > radius
            new += weight * difference * min(1.0, radius / distance)
            distances.append(distance)
        arrays = [message.astype(np.float32) for message in messages]
        mixing.mix(1 - sum(weights), list(zip(weights, arrays, strict=True)))
        found = flat(trainer)
        np.testing.assert_allclose(found, new, rtol=1e-4, atol=1e-5)
        x = found
    assert DISTANCES / 2 < clipped < 2 * DISTANCES - 5


@pytest.mark.backends
def test_equal_parameters_have_no_distance_and_stay(trainer: Trainer) -> None:
    mixing, x = ClippedMixing(trainer), flat(trainer)
    for _ in range(3):
        mixing.mix(0.5, [(0.5, x.astype(np.float32))])
        np.testing.assert_allclose(flat(trainer), x, rtol=1e-6)


@pytest.mark.backends
@pytest.mark.parametrize("peers", [3, 4, 6])
def test_the_largest_and_the_smallest_of_each_number_are_dropped(
    trainer: Trainer, peers: int
) -> None:
    draw = np.random.default_rng(peers)
    messages = [draw.normal(size=D).astype(np.float32) for _ in range(peers)]
    messages[1][:] = 3e38
    own, x = 0.3, flat(trainer)
    expected = [
        own * x[i] + (1 - own) * np.mean(sorted(float(m[i]) for m in messages)[1:-1])
        for i in range(D)
    ]
    TrimmedMixing(trainer).mix(own, [((1 - own) / peers, message) for message in messages])
    np.testing.assert_allclose(flat(trainer), expected, rtol=1e-5, atol=1e-6)


def test_trimming_needs_three_in_peers() -> None:
    make_topology(Gossip(replicas=4, graphs=["complete"], mean="trimmed"))
    with pytest.raises(SeedbedError, match=r"3 in-peers.*learner 0 has 1 in gossip\.graphs\[0\]"):
        make_topology(Gossip(replicas=4, mean="trimmed"))
    turns = [[[1, 0], [2, 0], [3, 0]], "complete"]
    make_topology(Gossip(replicas=4, graphs=turns, mean="trimmed"))


@pytest.mark.parametrize("mean", ["clipped", "trimmed"])
def test_learners_mix_with_the_mean_of_the_settings(tmp_path: Path, mean: str) -> None:
    config = experiment(tmp_path, 4, graphs=["complete"], mean=mean, max_norm_ratio=1e30)
    learners = [GossipLearner(config, rank, tmp_path, updates=1) for rank in range(4)]
    try:
        for learner in learners:
            learner.start()
        bad = learners[3].trainer

        def all_mix() -> bool:
            bad.set_params([np.full_like(array, 1e12) for array in bad.params()])
            for learner in learners:
                learner.let(1)
            return all(learner.stats.mixes > 3 for learner in learners[:3])

        wait_for(all_mix, "all mix", every_s=0.05)
        if mean == "trimmed":
            assert max(abs(learner.trainer.flat).max() for learner in learners[:3]) < 1e3
        assert (learners[0].folder / "learners").read_text() == f"4 30 {mean}\n"
    finally:
        for learner in learners:
            learner.kill()


def test_the_log_of_another_mean_is_another_log(tmp_path: Path) -> None:
    GossipLog(tmp_path / "gossip", 30.0, 3)
    assert (tmp_path / "gossip/learners").read_text() == "3 30 mean\n"
    GossipLog(tmp_path / "gossip", 30.0, 3, mean="clipped")
    assert (tmp_path / "gossip.1/learners").read_text() == "3 30 mean\n"
