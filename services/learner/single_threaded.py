"""`learner.deterministic`: a learner and its environments in one thread, without a wire.

Everything that decides a number has a fixed order. Actors, groups and environments are stepped by
their indices. All groups of an actor are one inference batch. Unrolls that the newest steps have
completed are trained on before any group is answered. So the same seed gives the same actions and
the same losses, bit by bit, on the same machine with the same packages. See
docs/reproducibility.md.
"""

from __future__ import annotations

import csv
import time
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from seedbed.config import Experiment
from seedbed.envs import make_actor_env
from seedbed.rpc.versions import PROTOCOL_VERSION
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.signals import on_stop_signals
from seedbed.runtime.threads import POLL_S
from seedbed.services.actor.loop import actor_name, make_step
from seedbed.services.learner.base import LearnerBase
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.inference.thread import split_outputs
from seedbed.services.learner.profiling import profile_on_signal
from seedbed.services.learner.sessions.handshake import Handshake
from seedbed.services.learner.sessions.session import Session
from seedbed.services.learner.sessions.slots import SlotAllocator
from seedbed.services.learner.training.sources import PrefetchedSource
from seedbed.services.learner.unrolls.batches import TrainingBatch
from seedbed.spec import EnvironmentSpec, TimeStep, VectorEnv


def run_deterministic(experiment: Experiment, directory: RunDirectory) -> dict[str, Any]:
    """Train in the calling thread, which is the main one, and return the run's summary.

    `trace.csv` in the run directory gets a row for each update: its loss and gradient norm with
    all their digits, and a checksum of its actions. Two runs that differ have different traces.

    Raises:
        SeedbedError: as `SingleThreadedLearner.run`, or the environments cannot be made.
    """
    learner = SingleThreadedLearner(experiment, directory)
    on_stop_signals(lambda name: learner.stop(f"signal {name}"))
    if learner.check_already_finished():
        return learner.load_or_complete_summary()
    profile_on_signal(learner.profiler)
    with (directory.path / "trace.csv").open("a", newline="") as file:
        learner.trace = csv.writer(file)
        if file.tell() == 0:
            learner.trace.writerow(["update", "loss", "gradient_norm", "actions_crc32"])
        return learner.run()


@dataclass
class _EnvSession:
    """A vector environment, its session, and its newest time step."""

    env: VectorEnv
    session: Session
    time_step: TimeStep


class SingleThreadedLearner(LearnerBase):
    """A learner that steps the environments itself, in the thread that trains."""

    def __init__(self, experiment: Experiment, run: RunDirectory, frozen: bool = False) -> None:
        super().__init__(experiment, run, frozen)
        self.trace: Any = None  # a csv writer
        self._slots = SlotAllocator(experiment.learner.inference.slots)

    def run(self) -> dict[str, Any]:
        """Train until the run ends, end it, and return the summary.

        Raises:
            SeedbedError: the first failure. The last checkpoint is written all the same, where
                that is possible.
        """
        sessions: list[_EnvSession] = []
        try:
            self._serve_http()
            backend = self._load_backend()
            envs = self._make_envs()
            components = self._build(self._agreed_spec(envs[0][0].spec), backend)
            self.components.set_result(components)
            batches = [
                batch
                for actor, made in enumerate(envs)
                for batch in self._inference_batches(self._open_sessions(components, actor, made))
            ]
            sessions = [session for batch in batches for session in batch]
            stats = self.telemetry.sessions
            stats.connected = len(sessions)
            stats.environments = sum(each.session.num_envs for each in sessions)
            while self.run_stop.reason is None:
                self._train(components, sessions)
                for batch in batches:
                    self._act(components, batch)
                self.training.give_states(components)
                self._poll()
        except Exception as error:
            self.threads.fail("the one thread", error)
        for each in sessions:
            each.session.close()
            each.env.close()
        return self.end()

    def _make_envs(self) -> list[list[VectorEnv]]:
        """Make the vector environments of each actor, in order."""
        experiment, settings = self.experiment, self.experiment.actor
        return [
            [make_actor_env(experiment, actor, group) for group in range(settings.groups)]
            for actor in range(settings.processes)
        ]

    def _agreed_spec(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        if self.components.spec is not None and self.components.spec != spec:
            raise SeedbedError(
                ExitCode.RESUME_REFUSED,
                f"the checkpoint is of {self.components.spec}, but the environment is {spec}",
            )
        self.components.fix_spec(spec)
        return spec

    def _open_sessions(
        self, components: LearnerComponents, actor: int, envs: list[VectorEnv]
    ) -> list[_EnvSession]:
        sessions = []
        for index, env in enumerate(envs):
            name, e = actor_name(actor, index), env.num_envs
            handshake = Handshake(PROTOCOL_VERSION, 0, name, e, components.spec)
            slots = self._slots.allocate(e)
            session = Session(index, handshake, slots, components.unroll, self.telemetry.sessions)
            sessions.append(_EnvSession(env, session, env.reset()))
        return sessions

    def _inference_batches(self, sessions: list[_EnvSession]) -> list[list[_EnvSession]]:
        """Split the sessions of an actor into as few inference batches as hold them."""
        each = self.experiment.actor.envs_per_group
        size = self.experiment.learner.inference.max_batch_envs // each
        return [sessions[start : start + size] for start in range(0, len(sessions), size)]

    def _train(self, components: LearnerComponents, sessions: list[_EnvSession]) -> None:
        """Pass the newest time steps to the sessions, and train on the batches that they fill."""
        source = components.source
        assert isinstance(source, PrefetchedSource), "learner.deterministic has no device replay"
        unrolls = [
            each.session.receive(make_step(each.time_step, each.session.sequence))
            for each in sessions
        ]
        for unroll in unrolls:
            if unroll is not None:
                self.prefetch.insert(components, unroll)
                while (batch := source.prepare(POLL_S)) is not None:
                    self.training.train(components, batch)
                    self._write_trace(batch)

    def _act(self, components: LearnerComponents, sessions: list[_EnvSession]) -> None:
        """Answer the sessions in one batch, and step their environments."""
        started = time.perf_counter()
        requests = [each.session.request() for each in sessions]
        params, version = self.store.newest()
        with self.telemetry.busy["inference"]:
            outputs = components.inference.run(params, [request.inputs for request in requests])
            split_outputs(outputs, requests, version)
        run_s = time.perf_counter() - started
        self.telemetry.inference.on_batch(
            rows=sum(request.num_envs for request in requests),
            padded_rows=outputs.padded_rows,
            oldest_wait_s=0.0,
            latencies_s=[run_s] * len(requests),
            run_s=run_s,
        )
        for each, request in zip(sessions, requests, strict=True):
            assert request.action is not None
            each.time_step = each.env.step(np.frombuffer(request.action, np.int32))

    def _write_trace(self, batch: TrainingBatch) -> None:
        if self.trace is None:
            return
        loss, norm = (
            repr(self.telemetry.training.scalars[name]) for name in ("loss", "gradient_norm")
        )
        checksum = zlib.crc32(batch.arrays["action"].tobytes())
        self.trace.writerow([self.counters.updates, loss, norm, f"{checksum:08x}"])
