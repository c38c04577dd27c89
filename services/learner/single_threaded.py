"""`learner.deterministic`: the learner's own parts in one thread, with no socket between them.

What decides a number has a fixed order: actors, groups and environments are stepped by their
indices, all groups of an actor are one inference batch, and what everybody's newest rows have
filled is trained on before anybody is answered. So the same seed gives the same actions and the
same losses, bit by bit, on the same machine with the same packages. See docs/reproducibility.md.
"""

from __future__ import annotations

import csv
import time
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from seedbed import backends
from seedbed.config import Experiment
from seedbed.envs import make_actor_env
from seedbed.rpc.versions import PROTOCOL_VERSION
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.signals import on_stop_signals
from seedbed.services.actor.loop import actor_name, make_step
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.inference.thread import split_outputs
from seedbed.services.learner.learner import Learner
from seedbed.services.learner.profiling import profile_on_signal
from seedbed.services.learner.sessions.handshake import Handshake
from seedbed.services.learner.sessions.session import Session
from seedbed.services.learner.sessions.slots import SlotAllocator
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.spec import EnvironmentSpec, TimeStep, VectorEnv


def run_deterministic(experiment: Experiment, directory: RunDirectory) -> dict[str, Any]:
    """Train in the calling thread, which is the main one, and return the run's summary.

    `trace.csv` in the run directory has a row for each update: its loss and gradient norm with all
    their digits, and a checksum of its actions. Where two runs part, their traces do.

    Raises:
        SeedbedError: as `Learner.run`, or the environments cannot be made.
    """
    learner = OneThreadLearner(experiment, directory)
    on_stop_signals(lambda name: learner.stop(f"signal {name}"))
    if learner.finished():
        return learner.repeat()
    profile_on_signal(learner.profiler)
    with (directory.path / "trace.csv").open("a", newline="") as file:
        learner.trace = csv.writer(file)
        if file.tell() == 0:
            learner.trace.writerow(["update", "loss", "gradient_norm", "actions_crc32"])
        return learner.play()


@dataclass
class _Seat:
    """A group of environments, its session, and what it has just seen."""

    group: VectorEnv
    session: Session
    frame: TimeStep


class OneThreadLearner(Learner):
    """A learner that steps the environments itself. `play` takes the place of `start` and `run`."""

    def __init__(self, experiment: Experiment, run: RunDirectory, frozen: bool = False) -> None:
        super().__init__(experiment, run, "", frozen)
        self.trace: Any = None  # a csv writer
        self._slots = SlotAllocator(experiment.learner.inference.slots)

    def play(self) -> dict[str, Any]:
        """Until the run is over; then as `Learner.run`.

        Raises:
            SeedbedError: the first failure. A last checkpoint is tried.
        """
        learner, seats = self.experiment.learner, list[_Seat]()
        try:
            self._serve_http()
            backend = backends.use(learner.backend, learner.deterministic, learner.device)
            groups = self._make_groups()
            built = self._build(self._agreed_spec(groups[0][0].spec), backend)
            batches = [self._seats(built, actor, made) for actor, made in enumerate(groups)]
            batches = [part for seats in batches for part in self._fitting(seats)]
            seats = [seat for batch in batches for seat in batch]
            self.telemetry.sessions.set_connected(
                len(seats), sum(seat.session.num_envs for seat in seats)
            )
            while self._stop_reason is None:
                self._receive(built, seats)
                for batch in batches:
                    self._act(built, batch)
                self.training.give_states(built)
                self._look()
        except Exception as error:
            self.threads.fail("the one thread", error)
        for seat in seats:
            seat.session.close()
            seat.group.close()
        return self._end()

    def _make_groups(self) -> list[list[VectorEnv]]:
        """The groups of each actor, in order."""
        experiment, settings = self.experiment, self.experiment.actor
        return [
            [make_actor_env(experiment, actor, group) for group in range(settings.groups)]
            for actor in range(settings.processes)
        ]

    def _agreed_spec(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        if self.model.spec is not None and self.model.spec != spec:
            raise SeedbedError(
                ExitCode.RESUME_REFUSED,
                f"the checkpoint is of {self.model.spec}, but the environment is {spec}",
            )
        self.model.fix_spec(spec)
        return spec

    def _seats(self, built: LearnerComponents, actor: int, groups: list[VectorEnv]) -> list[_Seat]:
        seats = []
        for index, group in enumerate(groups):
            name, e = actor_name(actor, index), group.num_envs
            handshake = Handshake(PROTOCOL_VERSION, 0, name, e, built.spec)
            slots = self._slots.allocate(e)
            session = Session(index, handshake, slots, built.unroll, self.telemetry.sessions)
            seats.append(_Seat(group, session, group.reset()))
        return seats

    def _fitting(self, seats: list[_Seat]) -> list[list[_Seat]]:
        """An actor's groups as one batch, or as few as hold them."""
        each = self.experiment.actor.envs_per_group
        size = self.experiment.learner.inference.max_batch_envs // each
        return [seats[start : start + size] for start in range(0, len(seats), size)]

    def _receive(self, built: LearnerComponents, seats: list[_Seat]) -> None:
        """Send what the groups have seen, then train on the batches that it fills."""
        blocks = [
            seat.session.receive(make_step(seat.frame, seat.session.sequence)) for seat in seats
        ]
        for block in blocks:
            if block is not None:
                for batch, arrays in self.prefetch.build(built, block):
                    self.training.train(built, batch, arrays)
                    self._write_trace(batch)

    def _act(self, built: LearnerComponents, seats: list[_Seat]) -> None:
        """Answer the groups in one batch, and step them."""
        started = time.perf_counter()
        requests = [seat.session.request() for seat in seats]
        params, version = self.store.newest()
        with self.telemetry.busy["inference"]:
            answer = built.inference.run(params, [request.inputs for request in requests])
            split_outputs(answer, requests, version)
        run_s = time.perf_counter() - started
        self.telemetry.inference.on_batch(
            rows=sum(request.num_envs for request in requests),
            padded_rows=answer.padded_rows,
            requests=len(requests),
            oldest_wait_s=0.0,
            latencies_s=[run_s] * len(requests),
            run_s=run_s,
        )
        for seat, request in zip(seats, requests, strict=True):
            assert request.action is not None
            seat.frame = seat.group.step(np.frombuffer(request.action, np.int32))

    def _write_trace(self, batch: TrainingBatch) -> None:
        if self.trace is None:
            return
        loss, norm = (
            repr(self.telemetry.training.scalars[name]) for name in ("loss", "gradient_norm")
        )
        checksum = zlib.crc32(batch.arrays["action"].tobytes())
        self.trace.writerow([self.counters.updates, loss, norm, f"{checksum:08x}"])
