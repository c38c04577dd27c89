"""Hogwild: learners whose gradients go onto one shared copy, as the steps of a slow reference."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from seedbed.backends.protocol import Backend
from seedbed.gossip.exchange import LocalLearner, ShuttingDown
from seedbed.gossip.hogwild import HogwildExchange
from seedbed.gossip.membership import Membership
from seedbed.gossip.parameters import FlatParams, ParameterLayout
from seedbed.gossip.transport.chunks import ChunkAssembler, to_chunks
from seedbed.gossip.transport.transport import GossipTransport
from seedbed.rpc.credentials import PLAIN
from seedbed.rpc.versions import GOSSIP_PROTOCOL_VERSION
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.threads import Threads
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.gossip import GossipStats
from seedbed.v1 import gossip_pb2 as wire
from seedbed.v1.gossip_pb2_grpc import GossipStub
from tests.gossip.test_allreduce import make_trainer, rows, state_of
from tests.support.gossip_learners import experiment
from tests.support.raw_wire import metadata_of
from tests.support.waiting import wait_for

pytestmark = pytest.mark.backends


class Learner:
    """One learner of hogwild in this process."""

    def __init__(self, folder: Path, backend: Backend, rank: int, count: int, **more: Any) -> None:
        self.backend, self.trainer = backend, make_trainer(backend)
        config = experiment(folder, count, topology="hogwild", **more)
        names, shapes = zip(*self.trainer.layout(), strict=True)
        self.layout = ParameterLayout(names, shapes)
        self.membership = Membership(rank, count, config.gossip.deadline_s)
        self.counters, self.threads = Counters(), Threads()
        self.address = config.gossip.addresses[rank]
        self.transport = GossipTransport(
            config,
            self.membership,
            self.layout,
            self.threads,
            PLAIN,
            lambda: wire.Member(iteration=self.counters.updates, updates=self.counters.updates),
            Future,
        )
        learner = LocalLearner(
            self.trainer, self.layout, self.counters, GossipStats(), self.threads
        )
        self.exchange = HogwildExchange(config.gossip, learner, self.transport)

    def step(self, batch: dict[str, NDArray[np.float32]]) -> float:
        outputs = self.exchange.step(self.backend.to_device(batch))
        norm = float(np.asarray(outputs["gradient_norm"]))
        self.counters.updates += bool(np.isfinite(norm))
        return norm

    def accumulate(self, number: int, gradients: FlatParams) -> list[Any]:
        """Send gradients as a peer does; return all replies."""
        hello = wire.GossipHello(
            protocol_version=GOSSIP_PROTOCOL_VERSION,
            experiment="team",
            rank=1,
            learners=2,
            parameters=self.layout.digests(),
            incarnation=7,
        )
        chunks = to_chunks(number, gradients)
        requests = [wire.AccumulateRequest(gradients=chunk) for chunk in chunks]
        with grpc.insecure_channel(self.address) as channel:
            return list(
                GossipStub(channel).Accumulate(
                    iter(requests), metadata=metadata_of(hello), timeout=20
                )
            )

    def acting(self) -> FlatParams:
        params = self.exchange.acting_params()
        assert params is not None
        return self.layout.flatten([np.asarray(array) for array in params])

    def shared(self) -> FlatParams:
        return self.layout.flatten([np.asarray(array) for array in self.trainer.params()])

    def close(self) -> None:
        self.threads.stopping.set()
        self.exchange.close()
        assert not self.threads.join(20)


class Team:
    """Learners that start together, learner 0 first."""

    def __init__(self, folder: Path, backend: Backend, count: int, **more: Any) -> None:
        self.learners = [Learner(folder, backend, rank, count, **more) for rank in range(count)]

    def __enter__(self) -> list[Learner]:
        with ThreadPoolExecutor(len(self.learners)) as pool:
            list(pool.map(lambda learner: learner.exchange.start(), self.learners))
        return self.learners

    def __exit__(self, *_: object) -> None:
        for learner in reversed(self.learners):
            learner.close()


def test_gradients_are_those_of_the_copy_that_acted(backend: Backend, tmp_path: Path) -> None:
    """Against one trainer: its gradients at the parameters that each learner held, applied by one
    optimizer in the order in which the learners made them.
    """
    order = [0, 1, 2, 1, 1, 0, 2, 0, 1]
    reference = make_trainer(backend)
    with Team(tmp_path, backend, 3) as learners:
        held = [reference.params()] * 3
        for number, rank in enumerate(order):
            batch = rows(5, seed=number)
            _, gradients = reference.gradients(backend.to_device(batch), held[rank])
            norm = reference.apply(gradients)
            held[rank] = reference.params()
            found = learners[rank].step(batch)
            assert found == pytest.approx(float(np.asarray(norm)), rel=1e-4)
            wanted = learners[rank].layout.flatten([np.asarray(a) for a in held[rank]])
            np.testing.assert_allclose(learners[rank].acting(), wanted, rtol=1e-5, atol=1e-6)
        wanted_state, found_state = state_of(reference), state_of(learners[0].trainer)
        assert found_state.keys() == wanted_state.keys()
        for name, array in wanted_state.items():
            np.testing.assert_allclose(found_state[name], array, rtol=1e-4, atol=1e-6)


def test_learner_0_keeps_the_copy_that_acts_while_peers_update(
    backend: Backend, tmp_path: Path
) -> None:
    with Team(tmp_path, backend, 2) as (first, second):
        before = first.acting()
        second.step(rows(4, seed=1))
        assert first.acting().tobytes() == before.tobytes(), "until its own next update"
        assert first.shared().tobytes() != before.tobytes()
        assert second.acting().tobytes() == first.shared().tobytes()
        first.step(rows(4, seed=2))
        assert first.acting().tobytes() == first.shared().tobytes()


def test_learners_at_once_lose_no_gradients(backend: Backend, tmp_path: Path) -> None:
    steps, done = 20, threading.Event()
    with Team(tmp_path, backend, 3) as learners:

        def states() -> None:
            while not done.is_set():  # as a checkpoint reads, while peers apply
                learners[0].trainer.state()

        reader = threading.Thread(target=states)
        reader.start()

        def train(learner: Learner) -> None:
            for seed in range(steps):
                learner.step(rows(4, seed=seed))

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(train, learners))
        done.set()
        reader.join()
        shared = learners[0].transport.shared_copy
        assert shared is not None
        assert shared.applied == 3 * steps
        iterations = learners[0].trainer.state()["optimizer/iteration"]
        assert int(iterations) == 3 * steps


def test_gradients_that_are_not_finite_stay_at_home(backend: Backend, tmp_path: Path) -> None:
    with Team(tmp_path, backend, 2) as (first, second):
        second.step(rows(4, seed=0))
        before = state_of(first.trainer)
        for learner in (first, second):
            bad = rows(4, seed=1)
            bad["y"][:], bad["mask"][:] = np.nan, 1
            assert not np.isfinite(learner.step(bad))
        for name, array in state_of(first.trainer).items():
            assert array.tobytes() == before[name].tobytes(), name
        assert np.isfinite(second.step(rows(4, seed=2)))


def test_a_peers_bad_gradients_are_refused(backend: Backend, tmp_path: Path) -> None:
    first = Learner(tmp_path, backend, 0, 2)
    first.exchange.start()
    try:
        before = first.shared()
        for bad, words in [
            (np.full(first.layout.size, np.nan, np.float32), "NaN or infinite"),
            (np.zeros(first.layout.size - 1, np.float32), "the parameters take"),
        ]:
            with pytest.raises(grpc.RpcError) as refused:
                first.accumulate(1, bad)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert words in refused.value.details()
        assert first.shared().tobytes() == before.tobytes()
    finally:
        first.close()


def test_gradients_that_are_sent_twice_count_once(backend: Backend, tmp_path: Path) -> None:
    """The reply was lost with its connection, so the peer sends the same number again."""
    first = Learner(tmp_path, backend, 0, 2)
    first.exchange.start()
    try:
        gradients = np.ones(first.layout.size, np.float32)

        def send(number: int) -> int:
            """Return the count of gradients that the shared copy has after these."""
            replies = first.accumulate(number, gradients)
            values = [ChunkAssembler(first.layout).add(r.parameters) for r in replies]
            assert values[-1] is not None
            assert values[-1].tobytes() == first.shared().tobytes()
            return int(replies[-1].parameters.iteration)

        assert [send(number) for number in (1, 1, 2, 2)] == [1, 1, 2, 2]
    finally:
        first.close()


def test_learner_0_is_restarted(backend: Backend, tmp_path: Path) -> None:
    """The gradients under way reach the next process, and training goes on from its parameters."""
    with Team(tmp_path, backend, 2, deadline_s=60.0) as (first, second):
        second.step(rows(4, seed=0))
        first.close()
        again: list[Learner] = []
        with ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(second.step, rows(4, seed=1))
            wait_for(lambda: second.exchange.stats.waiting, "it waits for learner 0")
            again.append(Learner(tmp_path, backend, 0, 2))
            again[0].exchange.start()
            assert np.isfinite(under_way.result(60))
        try:
            assert second.acting().tobytes() == again[0].shared().tobytes()
            shared = again[0].transport.shared_copy
            assert shared is not None
            assert shared.applied == 1
        finally:
            again[0].close()


@pytest.mark.slow
def test_without_learner_0_the_deadline_is_named(backend: Backend, tmp_path: Path) -> None:
    with Team(tmp_path, backend, 2, deadline_s=2.0) as (first, second):
        first.close()
        with pytest.raises(SeedbedError) as lost:
            second.step(rows(4, seed=0))
        assert lost.value.code is ExitCode.PEERS_UNREACHABLE
        assert "no parameters of learner 0 in 2 s, and the limit is 2" in str(lost.value)
        with ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(second.step, rows(4, seed=0))
            second.threads.stopping.set()
            with pytest.raises(ShuttingDown):
                under_way.result(20)


def test_a_learner_without_a_shared_copy_says_so(backend: Backend, tmp_path: Path) -> None:
    with Team(tmp_path, backend, 2) as (_, second):
        with grpc.insecure_channel(second.address) as channel:
            call = GossipStub(channel).Accumulate(iter([wire.AccumulateRequest()]), timeout=20)
            with pytest.raises(grpc.RpcError) as refused:
                list(call)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION  # type: ignore[attr-defined]
        assert "learner 1 with gossip.topology hogwild holds no shared copy" in str(refused.value)
