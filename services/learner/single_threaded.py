"""`learner.deterministic`: a learner and its environments in one thread, without a wire.

Everything that decides a number has a fixed order. Actors, groups and environments are stepped by
their indices. All groups of an actor are one inference batch. Unrolls that the newest steps have
completed are trained on before any group is answered. So the same seed gives the same actions and
the same losses, bit by bit, on the same machine with the same packages. See
docs/reproducibility.md.
"""

import csv
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from seedbed.config import Experiment
from seedbed.envs import make_actor_env
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.calls import WAITING
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.signals import RUN_STOPS, on_stop_signals
from seedbed.runtime.threads import POLL_S
from seedbed.services.actor.messages import make_step
from seedbed.services.learner.base import LearnerBase
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.inference.thread import dispatch, land
from seedbed.services.learner.sessions.session import Session
from seedbed.services.learner.sessions.slots import SlotAllocator, exploration_of
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
    if (summary := learner.summary_if_finished()) is not None:
        return summary
    learner.profiler.profile_on_signal()
    with (directory.path / "trace.csv").open("a", newline="") as file:
        learner.trace = csv.writer(file)
        if file.tell() == 0:
            learner.trace.writerow(["update", "loss", "gradient_norm", "actions_crc32"])
        return learner.run(
            lambda: on_stop_signals(lambda name: learner.stop(f"signal {name}"), notice=RUN_STOPS)
        )


@dataclass
class _EnvSession:
    """A vector environment, its session, and its newest time step."""

    env: VectorEnv
    session: Session
    time_step: TimeStep


class SingleThreadedLearner(LearnerBase):
    """A learner that steps the environments itself, in the thread that trains."""

    trace: Any = None  # a csv writer

    def run(self, on_built: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Train until the run ends, end it, and return the summary.

        Args:
            on_built: called when there is something that a signal should save.

        Raises:
            SeedbedError: the first failure. The last checkpoint is written all the same, where
                that is possible.
        """
        sessions: list[_EnvSession] = []
        # Ticks come from this thread, which an environment may hold up.
        self.telemetry.environment_wait = lambda: WAITING.text
        WAITING.listener = lambda text: self.telemetry.tick()
        try:
            self._serve_http()
            backend = self._load_backend()
            actor = self.experiment.actor
            envs = [
                [make_actor_env(self.experiment, index, group) for group in range(actor.groups)]
                for index in range(actor.processes)
            ]
            components = self._build(self._agreed_spec(envs[0][0].spec), backend)
            on_built()
            self.components.set_result(components)
            batches = self._open_sessions(components, envs)
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
        WAITING.listener = None
        return self.end()

    def _agreed_spec(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        if self.components.spec is not None and self.components.spec != spec:
            raise SeedbedError(
                ExitCode.RESUME_REFUSED,
                f"the checkpoint is of {self.components.spec}, but the environment is {spec}",
            )
        self.components.fix_spec(spec)
        return spec

    def _open_sessions(
        self, components: LearnerComponents, actors: list[list[VectorEnv]]
    ) -> list[list[_EnvSession]]:
        """Open the sessions, in as few inference batches as hold those of each actor."""
        inference, stats = self.experiment.learner.inference, self.telemetry.sessions
        size = inference.max_batch_envs // self.experiment.actor.envs_per_group
        allocator = SlotAllocator(inference.slots)
        batches, taken = [], list[int]()
        for envs in actors:
            sessions = []
            for env in envs:
                slots = allocator.allocate(env.num_envs)
                taken += slots.tolist()
                bounds = self.experiment.environment.bounds
                session = Session(components.spec, slots, components.unroll, stats, bounds)
                env.incarnation = self.counters.env_frames  # other episodes than before a restart
                sessions.append(_EnvSession(env, session, env.reset()))
            batches += [sessions[at : at + size] for at in range(0, len(sessions), size)]
        stats.on_exploration(exploration_of(self.experiment, taken))
        return batches

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
                    updates = self.counters.updates
                    self.training.train(components, batch)
                    if self.counters.updates > updates:
                        self._write_trace(batch)

    def _act(self, components: LearnerComponents, sessions: list[_EnvSession]) -> None:
        """Answer the sessions in one batch, and step their environments."""
        requests = [each.session.request() for each in sessions]
        clock = self.telemetry.busy["inference"]
        flight = dispatch(components.inference[0], requests, self.store.newest(), clock)
        land(flight, self.telemetry, clock, lambda batch: None)
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
