"""Four updates of one of several hosts, with a peer's parameters mixed in before the last one.

Usage: `python host_update.py HOST HOSTS COORDINATOR FILE AGENT [TRAINING]`.

Each host brings its part of the same batches, and writes the trainer's state into FILE. With
TRAINING, two devices of each host act, and that many others train.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from seedbed import backends
from seedbed.backends.coordination import HostPlace
from seedbed.backends.protocol import Backend
from seedbed.backends.roles import Split
from seedbed.backends.trainer import Trainer
from seedbed.config.load import parse_experiment
from seedbed.gossip.exchange import ParameterExchange
from seedbed.gossip.parameters import ParameterLayout
from seedbed.services.learner.hosts.agreement import Agreement
from seedbed.services.learner.hosts.exchange import FirstHostParameters, HostsExchange
from seedbed.spec import ArraySpec, EnvironmentSpec

EXPERIMENT = """
name: update
environment: {id: CartPole-v1}
agent: vtrace
learner:
  backend: jax
  network: mlp
  frame_stack: 1
  unroll_length: 5
  batch_size: 8
  optimizer: {max_gradient_norm: 1.0}
"""
REPLAY = ["agent=r2d2", "r2d2.burn_in=0", "learner.replay.min_size=8"]
SPEC = EnvironmentSpec("CartPole-v1", ArraySpec((4,), "float32"), 2, 1)
T, B = 5, 8


def batch(seed: int, agent: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    arrays = {
        "observation": random.normal(size=(T + 1, B, 4)).astype(np.float32),
        "flags": np.zeros((T + 1, B), np.uint8),
        "reward": random.normal(size=(T + 1, B)).astype(np.float32),
        "action": random.integers(0, 2, (T, B)).astype(np.int32),
        "previous_action": np.full(B, -1, np.int32),
        "state": np.zeros((B, 0), np.float32),
    }
    if agent == "vtrace":
        logits = random.normal(size=(T, B, 2))
        return {**arrays, "behaviour/logits": logits.astype(np.float32)}
    return {**arrays, "probability": random.uniform(0.1, 1, B).astype(np.float32)}


class MixesAfterOneUpdate(ParameterExchange):
    """What gossip does on the first host, with messages that are known."""

    def __init__(self, parameters: FirstHostParameters, peers: list) -> None:
        self._parameters, self._peers = parameters, peers

    def start(self) -> None:
        pass

    def after_update(self) -> None:
        if self._peers:
            self._parameters.mix(0.5, self._peers)
            self._peers = []


def meet(backend: Backend, trainer: Trainer, peers: list) -> tuple[HostsExchange, Agreement]:
    agreement = Agreement(
        backend.coordination, dict, lambda told: None, str, lambda: None, lambda text: None
    )
    names, shapes = zip(*trainer.layout(), strict=True)
    first = FirstHostParameters(trainer) if backend.coordination.host == 0 else None
    exchange = HostsExchange(
        backend,
        trainer,
        ParameterLayout(names, shapes),
        agreement,
        first and MixesAfterOneUpdate(first, peers),
        first,
    )
    exchange.start()
    return exchange, agreement


def main(host: int, hosts: int, coordinator: str, file: str, agent: str, training: int = 0) -> None:
    place = HostPlace(host, hosts, coordinator) if hosts > 1 else None
    split = Split(2, training) if training else None
    backend = backends.use("jax", device="cpu", place=place, split=split)
    from seedbed.services.learner.components_factory import build_components

    more = [f"learner.hosts={hosts}", *(REPLAY if agent == "r2d2" else [])]
    if training:
        more.append(f"learner.devices={{inference: 2, training: {training}}}")
    trainer = build_components(parse_experiment(EXPERIMENT, more), SPEC, backend).trainer
    if hosts > 1:
        state = trainer.state()
        if host:  # whatever it is, it is not used
            state = {name: np.ones_like(array) for name, array in state.items()}
        trainer.load(backend.from_first_host(state))
    first = ("previous_action", "state", "probability")  # whose first axis is B
    part = slice(host * B // hosts, (host + 1) * B // hosts)
    results = {}
    exchange, agreement = None, None
    size = sum(math.prod(shape) for _, shape in trainer.layout())
    peer = [(0.25, np.linspace(-1, 1, size, dtype=np.float32)), (0.25, np.ones(size, np.float32))]
    for seed in range(4):
        if seed == 2 and hosts > 1:
            exchange, agreement = meet(backend, trainer, peer)
        elif seed == 3 and hosts == 1:
            trainer.mix(0.5, peer)
        arrays = {
            name: array[part] if name in first else array[:, part]
            for name, array in batch(seed, agent).items()
        }
        given = backend.to_device(arrays)
        if agreement is not None:
            assert agreement.all_go(has_batch=True)
        outputs = (exchange or trainer).step(given)
        results[f"loss/{seed}"] = np.asarray(outputs["loss"])
        if "priority" in outputs:
            results[f"priority/{seed}"] = np.asarray(outputs["priority"])
    for copy in backend.to_acting(trainer.params()):
        for trained, acting in zip(trainer.params(), copy, strict=True):
            np.testing.assert_array_equal(np.asarray(trained), np.asarray(acting))
    np.savez(file, **results, **trainer.state())
    if backend.coordination is not None:
        backend.coordination.barrier("end", 60)
        backend.coordination.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6], *map(int, sys.argv[6:]))
