"""The learner: its parts, how they are joined, and when the run is over."""

from __future__ import annotations

import logging
import time
from typing import Any

from seedbed import backends
from seedbed.backends.protocol import Backend
from seedbed.checkpoints.store import Checkpoint
from seedbed.config import Experiment
from seedbed.config.agents import SYNCHRONOUS
from seedbed.config.load import dump_experiment
from seedbed.gossip.exchange import ParameterExchange, ShuttingDown
from seedbed.gossip.membership import Membership
from seedbed.rpc.tls import Tls
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.http import MetricsServer, start_metrics_server
from seedbed.runtime.threads import POLL_S, Threads
from seedbed.services.learner.background_evaluation import BackgroundEvaluation
from seedbed.services.learner.checkpointer import Checkpointer
from seedbed.services.learner.components import (
    ComponentsFuture,
    LearnerComponents,
    ParameterStore,
    build,
)
from seedbed.services.learner.exchange_factory import make_exchange, make_membership
from seedbed.services.learner.inference.thread import InferenceThread
from seedbed.services.learner.profiling import Profiler
from seedbed.services.learner.sessions.batcher import Batcher
from seedbed.services.learner.sessions.server import InferenceServer
from seedbed.services.learner.sessions.servicer import InferenceServicer
from seedbed.services.learner.sessions.slots import SlotAllocator
from seedbed.services.learner.stop import Reached, peer_reached, stop_reached
from seedbed.services.learner.training.prefetch import PrefetchThread
from seedbed.services.learner.training.thread import TrainingThread
from seedbed.services.learner.unrolls.queue import UnrollQueue
from seedbed.services.learner.unrolls.synchronous_queue import SynchronousUnrollQueue
from seedbed.services.learner.watchdog import Stuck
from seedbed.spec import EnvironmentSpec
from seedbed.telemetry import Counters, Telemetry

log = logging.getLogger(__name__)

JOIN_S = 60.0  # longest wait for a thread to end: a training step that is under way


def synchronous(experiment: Experiment) -> bool:
    """Whether the agent trains on rounds of all environments.

    The class of a `module:Class` agent says so. Importing it imports Keras, so the backend is
    fixed here for it, before anything listens.

    Raises:
        SeedbedError: the agent cannot be loaded, or cannot have its rounds.
    """
    if ":" not in experiment.agent:
        return experiment.agent in SYNCHRONOUS
    learner = experiment.learner
    backends.use(learner.backend, learner.deterministic, learner.device)
    from seedbed.agents.factory import agent_and_options

    if not getattr(agent_and_options(experiment)[0], "synchronous", False):
        return False
    try:
        experiment.check_synchronous_batches()
    except ValueError as error:
        raise SeedbedError(ExitCode.CONFIG, str(error)) from error
    return True


class Learner:
    """One learner process. `start`, then `run` in the main thread until it is over.

    Args:
        run: the open run directory; its checkpoint, if any, is resumed from.
        listen: `host:port` or `unix:PATH`.
        frozen: never update the parameters (for tests and benchmarks).
        tls: actors need a certificate of its authority.
        rank: which one of `gossip.replicas` it is.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        listen: str,
        frozen: bool = False,
        tls: Tls | None = None,
        rank: int = 0,
    ) -> None:
        self.rank = rank
        self.members = make_membership(experiment, rank)
        self.experiment = experiment
        self.run_directory = run
        self.counters = Counters()
        self.telemetry = Telemetry(
            experiment, run.path, self.counters, actors_here=listen.startswith("unix:")
        )
        self.threads = Threads()
        learner = experiment.learner
        checkpoint = run.resume_from or run.start_from
        spec = EnvironmentSpec.from_json(checkpoint.meta["spec"]) if checkpoint else None
        if self.members is not None:
            self._share(self.members)
        self.evaluation = BackgroundEvaluation(experiment, run, self.telemetry)
        self._resume(run)
        self.model = ComponentsFuture(spec)
        self.store = ParameterStore()
        slots = SlotAllocator(learner.inference.slots)
        self.queue = UnrollQueue(learner.queue_batches * learner.batch_size)
        if synchronous(experiment):
            slots = SlotAllocator(learner.batch_size, "learner.batch_size")
            self.queue = SynchronousUnrollQueue(
                learner.batch_size, learner.straggler_timeout_s, lambda: self.store.newest()[1]
            )
        self.batcher = Batcher(
            learner.inference.batch_envs,
            learner.inference.max_batch_envs,
            learner.inference.max_wait_ms / 1000,
        )
        self.servicer = InferenceServicer(
            experiment, self.batcher, self.queue, self.telemetry, self.model, self._why_late, slots
        )
        self.wire = InferenceServer(self.servicer, listen, self.threads, tls)
        self.inference = InferenceThread(
            self.batcher, self.store, self.telemetry, self.servicer.send_actions
        )
        self.prefetch = PrefetchThread(self.queue, learner.batch_size, self.telemetry)
        self.training = TrainingThread(
            self.store, self.prefetch, self.telemetry, learner.epochs_per_batch, frozen
        )
        if isinstance(self.queue, SynchronousUnrollQueue):
            self.training.after.append(self.queue.release)
        self.saver = Checkpointer(learner.checkpoint, run.store, self.telemetry, self._meta)
        self._stuck = Stuck(learner.watchdog_timeout_s, self)
        self.profiler = Profiler(run.path / "profile", self.threads.stopping)
        self._http: MetricsServer | None = None
        self._exchange: ParameterExchange | None = None
        self._listen, self._tls = listen, tls
        self._stop_reason: str | None = None
        self.asked_to_stop = False
        self._reached: Reached | None = None
        self._next_tick = time.monotonic()
        self._finished: str | None = None  # while it stays after the end, why it ended

    def _share(self, members: Membership) -> None:
        """Count what the learners do together."""
        settings = self.experiment.gossip
        here = all(address.startswith("unix:") for address in settings.addresses)
        self.telemetry.join_learners(
            lambda: members.total(self.counters),
            lambda: {
                "rank": self.rank,
                "count": settings.replicas,
                "topology": settings.topology,
                "alive": sorted(members.alive()),
                "env_frames": members.total(self.counters).env_frames,
            },
            learners_here=settings.replicas if here else 1,
        )

    def _resume(self, run: RunDirectory) -> None:
        spent = run.last_counters()  # before anything writes its own
        if run.resume_from is not None:
            self._resume_from(run.resume_from)
        # What was learned after the checkpoint is lost; the time and the money are spent.
        self.counters.seconds = max(self.counters.seconds, float(spent.get("seconds", 0)))
        self.counters.dollars = max(self.counters.dollars, float(spent.get("dollars", 0)))

    def _resume_from(self, checkpoint: Checkpoint) -> None:
        meta = checkpoint.meta
        self.counters.set_from(meta["counters"])
        # What was queued or half rolled at the checkpoint is gone; say so.
        kept = self.counters.inserted_frames or self.counters.trained_frames
        self.counters.discarded_frames = self.counters.env_frames - kept
        self.telemetry.restore(meta["telemetry"])
        if self.members is not None:
            self.members.restore(meta.get("peers", {}))
        self.evaluation.best = meta["best_evaluation"]
        log.info("resumed at frame %d, update %d from %s", self.counters.env_frames,
                 self.counters.updates, checkpoint.path)  # fmt: skip

    # --- start -----------------------------------------------------------------------------

    def start(self) -> str:
        """Start everything; return the address that actors connect to.

        Raises:
            SeedbedError: BIND, or whatever a part failed of meanwhile.
        """
        self._serve_http()
        address = self.wire.start(serving=self.run_directory.resume_from is None)
        self.threads.start("training", self._train)
        self.threads.start("inference", self._infer)
        self.threads.start("prefetch", self._prefetch)
        return address

    def _serve_http(self) -> None:
        self._http = start_metrics_server(
            self.experiment.learner.metrics_port,
            self.telemetry.registry,
            unhealthy=self._stuck.cause,
            unready=self._unready,
            status=self.telemetry.status,
            profile=self.profiler.profile,
        )

    def _unready(self) -> str | None:
        """Why no actor should come: a checkpoint that is being restored, or a server that is not
        there yet. A learner without actors, or one whose run is finished, is ready and idle.
        """
        if self.wire.address is None:
            return "not listening yet"
        if self.run_directory.resume_from is not None and self._finished is None:
            return f"restoring the checkpoint: {self.telemetry.phase}"
        return None

    def _train(self) -> None:
        learner = self.experiment.learner
        self.telemetry.set_phase(f"loading {learner.backend}")
        backend = backends.use(learner.backend, learner.deterministic, learner.device)
        spec = None
        self.telemetry.set_phase("waiting for the first actor")
        while spec is None and not self.threads.stopping.is_set():
            spec = self.model.wait_for_spec(POLL_S)
        if spec is not None:
            try:
                built = self._build(spec, backend)
            except ShuttingDown:
                return
            self.training.run(built, self.threads.stopping)

    def _build(self, spec: EnvironmentSpec, backend: Backend) -> LearnerComponents:
        self.telemetry.set_phase("building the model")
        built = build(self.experiment, spec, backend, self.telemetry.replay, self._tls, self.rank)
        run = self.run_directory
        if run.resume_from is not None:
            built.trainer.load(run.resume_from.arrays)
            built.inference.random.bit_generator.state = run.resume_from.meta["random"]
        elif run.start_from is not None:
            built.trainer.load(run.start_from.arrays, optimizer=False)
        run.resume_from = run.start_from = None  # their arrays are memory
        if self.members is not None:
            self._meet(self.members, built)
        self.store.publish(built.trainer.params(), self.counters.updates)
        self.telemetry.set_phase("training")
        self.wire.set_serving()
        self.model.set(built)
        return built

    def _meet(self, members: Membership, built: LearnerComponents) -> None:
        """Join the other learners, and begin where they are."""
        exchange = make_exchange(
            self.experiment, members, built, self.training, self.telemetry, self.threads,
            self.run_directory.path / "gossip", self._tls,
        )  # fmt: skip
        self.telemetry.set_phase("meeting the other learners")
        self._exchange = exchange
        if self.threads.stopping.is_set():  # who stops closes the exchange, if it sees one
            raise ShuttingDown
        exchange.start()
        self.training.exchange = exchange

    def _wait_for_model(self) -> LearnerComponents | None:
        """The model; None if the learner stops before it is built."""
        built = None
        while built is None and not self.threads.stopping.is_set():
            built = self.model.built(POLL_S)
        return built

    def _infer(self) -> None:
        built = self._wait_for_model()
        if built is not None:
            self.inference.run(built.inference, self.threads.stopping)

    def _prefetch(self) -> None:
        built = self._wait_for_model()
        if built is not None:
            self.prefetch.run(built, self.threads.stopping)

    def _why_late(self) -> str:
        missing = self.queue.missing if isinstance(self.queue, SynchronousUnrollQueue) else 0
        if missing:
            return f"the round waits for {missing} environments that have not come"
        return self.telemetry.waiting() or "the learner is busy"

    # --- run -------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """End the run at the next look of `run`. Safe in a signal handler.

        A run that is ending anyway goes without the last evaluation.
        """
        self.evaluation.hurry = self._stop_reason is not None
        self.asked_to_stop = True
        self._stop_reason = self._stop_reason or reason

    def finished(self) -> bool:
        """Whether the run that is resumed has met a stop condition already. Then it says so.

        There is nothing to start: `run` ends at once.
        """
        reached = self._look_for_end()
        if reached is not None:
            log.info("this run is finished (%s): to go on, raise that condition", reached.text)
            self._reached = reached
            self.telemetry.set_stop_condition(reached.text)
            self._stop_reason = self._stop_reason or reached.text
        return reached is not None

    def repeat(self) -> dict[str, Any]:
        """Of a run that is `finished`: the summary that it ended with. What the end lacked, the
        last evaluation that a signal cut short, is made up for.
        """
        kept = self.run_directory.read_summary()
        if kept is None:
            return self._end()
        evaluated = (kept["evaluation"] or {}).get("updates") == kept["updates"]
        if self._wants_evaluation() and not evaluated:
            return self._end()
        self.telemetry.evaluation.restore(kept["evaluation"] or {})
        self.telemetry.set_stop_reason(kept["stop_reason"])
        return kept

    def _wants_evaluation(self) -> bool:
        """Whether there is to be a last one. It costs as well: after a cap on dollars, none."""
        reached = self._reached
        return (
            reached is not None
            and reached.condition != "dollars"
            and self.experiment.evaluation.at_end
        )

    def run(self) -> dict[str, Any]:
        """Watch the parts until the run is over, end them, and return the summary.

        Raises:
            SeedbedError: what the first part to fail failed of. A last checkpoint is tried.
        """
        while self._stop_reason is None and not self.threads.stopping.wait(POLL_S / 2):
            try:
                self._look()
            except Exception as error:  # no way out but through `_end`
                self.threads.fail("main", error)
        return self._end()

    def _look_for_end(self) -> Reached | None:
        """The stop condition that is met, by this learner or by all together; None before."""
        members, mean_return = self.members, self.telemetry.sessions.mean_return
        if members is None:
            return stop_reached(self.experiment.stop, self.counters, mean_return)
        if text := members.peers_over():
            return peer_reached(text)
        return stop_reached(
            self.experiment.stop,
            members.total(self.counters),
            lambda episodes: members.mean_return(mean_return, episodes),
        )

    def _tick(self) -> None:
        self.telemetry.inference.set_waiting(self.batcher.depth)
        self.telemetry.training.set_queue(self.queue.columns, self.queue.capacity_columns)
        self.telemetry.tick()

    def _look(self) -> None:
        """What is due now; never waits."""
        self._stuck.check()
        if self.model.is_built:
            self.saver.poll(self.training.request_state)
            self.evaluation.poll(self.saver)
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = max(self._next_tick + self.experiment.logging.interval_s, now)
            self._tick()
        self._reached = self._look_for_end()
        if self._reached is not None:
            self.telemetry.set_stop_condition(self._reached.text)
            self._stop_reason = self._stop_reason or self._reached.text

    def _end(self) -> dict[str, Any]:
        reached = self._reached
        failure = self.threads.failure
        reason = self._stop_reason or "a part failed"
        log.info("ending: %s", reason)
        self._stop_reason = reason
        self.telemetry.set_phase(f"ending: {reason}")
        self.threads.stopping.set()
        self.batcher.close()
        self.wire.end_streams(reason, over=reached is not None)
        self.wire.close()
        if self._exchange is not None:
            self._exchange.close()
        running = self.threads.join(JOIN_S)
        dropped = self.queue.close() + self.prefetch.pending_steps()
        built = self.model.built(0) if self.model.is_built else None
        if built is not None:
            self.telemetry.sessions.on_discarded(
                dropped * built.spec.action_repeat, "the learner stopped"
            )
        if running and failure is None:
            failure = SeedbedError(
                ExitCode.THREAD_STUCK,
                f"{', '.join(running)} did not end within {JOIN_S:g} s of: {reason}",
            )
        if (
            built is not None
            and not running
            and (failure is None or failure.code is not ExitCode.DIVERGED)
        ):
            # The training thread has ended, so its trainer is ours.
            try:
                finished = reached.text if reached is not None else None
                self.saver.save_last(built.trainer.state(), finished)
            except SeedbedError as error:
                failure = failure or error
            else:
                if failure is None:
                    self.evaluation.last(self.saver, self._wants_evaluation())
        elif built is None and failure is None and self.run_directory.resume_from is not None:
            self.saver.newest = self.run_directory.resume_from.path
            self.evaluation.last(self.saver, self._wants_evaluation())
        self.telemetry.set_stop_reason(reason)
        self._tick()
        summary = self.telemetry.summary()
        if reached is not None and failure is None:
            try:
                self.run_directory.write_summary(summary)
            except OSError as error:
                log.warning("summary.json cannot be written: %s", error)
        self.telemetry.close()
        if self._http is not None:
            self._http.close()
        if failure is not None:
            raise failure
        return summary

    def serve_until_stopped(self) -> None:
        """After `run`, where a stop condition was met: tell actors that it is over, and serve
        metrics and status until somebody asks to stop.

        In a cluster whoever ends by himself is started again.
        """
        if self._reached is None or self.asked_to_stop:
            return
        self._finished, self._stop_reason = self._reached.text, None
        log.info("the experiment is over (%s): staying until a signal", self._finished)
        self.threads = Threads()
        self.wire = InferenceServer(self.servicer, self._listen, self.threads, self._tls)
        self._serve_http()
        self.wire.start()
        self.wire.end_streams(self._finished, over=True)
        while self._stop_reason is None and not self.threads.stopping.wait(POLL_S):
            pass
        self.wire.close()
        self.threads.join(JOIN_S)
        if self._http is not None:
            self._http.close()
        if self.threads.failure is not None:
            raise self.threads.failure

    def _meta(self) -> dict[str, Any]:
        """What a checkpoint keeps besides arrays; JSON."""
        built = self.model.built(0)
        assert built is not None
        return {
            "counters": self.counters.to_json(),
            "telemetry": self.telemetry.to_json(),
            "spec": built.spec.to_json(),
            "peers": self.members.to_json() if self.members is not None else {},
            "random": built.inference.random.bit_generator.state,
            "experiment": dump_experiment(self.experiment),
            "best_evaluation": self.evaluation.best,
        }
