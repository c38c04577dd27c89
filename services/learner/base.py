"""Base of the learners with and without a wire: the parts of a run, its stop and its end."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from seedbed import backends
from seedbed.analysis.unroll_files import title_of
from seedbed.backends.protocol import Backend
from seedbed.backends.roles import Split
from seedbed.config import Experiment
from seedbed.gossip.exchange import ShuttingDown
from seedbed.gossip.membership import Membership
from seedbed.launch.operation_threads import operation_threads
from seedbed.launch.run_header import describe_model
from seedbed.packed import read_environment_spec
from seedbed.rpc.certificate_stats import CertificateStats
from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.runs.directory import COMPILED_FOLDER, RunDirectory
from seedbed.runs.history import provenance
from seedbed.runs.served_files import ServedFiles
from seedbed.runtime.collector import suspended_collector
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.http import MetricsServer, start_metrics_server
from seedbed.runtime.threads import Threads
from seedbed.services.learner.background_evaluation import BackgroundEvaluation
from seedbed.services.learner.checkpointer import Checkpointer
from seedbed.services.learner.components import ComponentsFuture, LearnerComponents, ParameterStore
from seedbed.services.learner.exchange_factory import make_exchange, make_membership
from seedbed.services.learner.hosts.agreement import StopNote
from seedbed.services.learner.hosts.host import LearnerHost
from seedbed.services.learner.profiling import Profiler
from seedbed.services.learner.run_state import RunState
from seedbed.services.learner.split_choice import divide_devices
from seedbed.services.learner.stop import RunStop
from seedbed.services.learner.synchronous import is_synchronous
from seedbed.services.learner.training.quarantine import Quarantine
from seedbed.services.learner.training.thread import PrefetchThread, TrainingThread
from seedbed.services.learner.unrolls.queue import PacedUnrollQueue, UnrollQueue
from seedbed.services.learner.unrolls.synchronous_queue import SynchronousUnrollQueue
from seedbed.spec import EnvironmentSpec
from seedbed.telemetry import Counters, Telemetry
from seedbed.telemetry.status import RunStatus

log = logging.getLogger(__name__)

# Longest wait for all threads to end, in seconds: an update may be under way.
JOIN_TIMEOUT_S = 60.0
# The same after a signal, while no update is there that a checkpoint would keep.
SIGNAL_JOIN_S = 2.0


class LearnerBase:
    """The parts of a run that need no actors: training, checkpoints, evaluation, stop and end.

    Args:
        experiment: the experiment.
        run: the open run directory. Its checkpoint, if any, is resumed from.
        frozen: never update the parameters (for tests and benchmarks).
        credentials: credentials of this process.
        rank: number of this learner among `gossip.replicas`, from 0.
        actors_here: the actors run on this machine.
        host: number of this host among `learner.hosts`, from 0.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        frozen: bool = False,
        credentials: Credentials = PLAIN,
        rank: int = 0,
        actors_here: bool = False,
        host: int = 0,
    ) -> None:
        self.rank = rank
        # The first of several hosts speaks with the other learners.
        known = run.resume_from.meta.get("peers", {}) if run.resume_from else {}
        self.members = make_membership(experiment, rank, known) if host == 0 else None
        self.experiment = experiment
        self.run_directory = run
        self.counters = Counters()
        self.telemetry = Telemetry(
            experiment,
            run.path,
            self.counters,
            actors_here=actors_here,
            tokens=credentials.tokens,
        )
        self.telemetry.provenance = provenance(run.path)
        if credentials.tls:
            self.telemetry.registry.add(CertificateStats(credentials.tls.folder))
        self.threads = Threads()
        self._credentials = credentials
        learner = experiment.learner
        self.hosts: LearnerHost | None = None
        if learner.hosts > 1:
            self.hosts = LearnerHost(experiment, host, self.telemetry, self._stop_note)
        checkpoint = run.resume_from or run.start_from
        spec = read_environment_spec(checkpoint.meta["spec"]) if checkpoint else None
        if self.members is not None:
            self._share_counters(self.members)
        self.evaluation = BackgroundEvaluation(experiment, run, self.telemetry)
        self._state = RunState(experiment, self.telemetry, self.members, self.evaluation)
        self._state.resume(run, self._is_first)
        self._updates_at_start = self.counters.updates
        self._resumed = run.resume_from is not None
        self.components = ComponentsFuture(spec)
        self.store = ParameterStore()
        self.queue = UnrollQueue(experiment.queue_batches * learner.host_batch_size)
        if not experiment.queue_batches:
            self.queue = PacedUnrollQueue(learner.host_batch_size)
        place = self.hosts.place if self.hosts else None
        if is_synchronous(experiment, place, operation_threads(experiment, actors_here)):
            self.queue = SynchronousUnrollQueue(
                learner.host_batch_size, learner.straggler_timeout_s, lambda: self.store.newest()[1]
            )
        self.prefetch = PrefetchThread(self.queue, self.telemetry)
        self.quarantine = Quarantine(run.path / "quarantine", title_of(experiment))
        self.training = TrainingThread(
            self.store, self.telemetry, self.queue.on_trained, self.quarantine,
            learner.max_skipped_updates, frozen,
        )  # fmt: skip
        self.checkpointer = Checkpointer(learner.checkpoint, run.store, self.telemetry, self._meta)
        self.profiler = Profiler(run.path / "profile", self.threads.stopping)
        # Each takes a limit in seconds, and returns why a part has made no progress for longer.
        self._probes: list[Callable[[float], str | None]] = [self.training.probe]
        self.run_stop = RunStop(experiment.stop, self.telemetry, self.members, self.hosts)
        self.files = ServedFiles(run.path, self._is_finished)
        self._http: MetricsServer | None = None
        self._next_tick = time.monotonic()
        self._first_batch_at: float | None = None

    def _share_counters(self, members: Membership) -> None:
        """Let telemetry report what all learners do together."""
        settings = self.experiment.gossip
        # Learners at unix sockets share this machine, and its price.
        here = all(address.startswith("unix:") for address in settings.addresses)
        self.telemetry.join_learners(
            lambda: members.total(self.telemetry.whole_counters()),
            lambda: {
                "rank": self.rank,
                "count": settings.replicas,
                "topology": settings.topology,
                "alive": sorted(members.alive()),
                "env_frames": members.total(self.telemetry.whole_counters()).env_frames,
                "left_env_frames": members.left_env_frames,
            },
            learners_here=settings.replicas if here else 1,
        )

    def _meta(self) -> dict[str, Any]:
        """Return what a checkpoint stores besides arrays; JSON."""
        components = self.components.result(0)
        assert components is not None
        return self._state.meta(components)

    # --- start -----------------------------------------------------------------------------

    def _unready(self) -> str | None:
        """Return why no actor should connect, or None."""
        return None

    def _serve_http(self) -> None:
        self._http = start_metrics_server(
            self.experiment.learner.metrics_port,
            self.telemetry.registry,
            unhealthy=self._why_stuck,
            unready=self._unready,
            status=self._status,
            rows=self.files.answer if self._is_first else None,
            profile=self.profiler.profile,
            tokens=self._credentials.tokens,
            insecure=self._credentials.insecure,
        )

    def _status(self) -> RunStatus:
        """Return the object of /status. Any thread."""
        status = self.telemetry.status()
        if self._is_first:
            status["rows_read"] = self.files.are_read
        return status

    def _is_finished(self) -> bool:
        """Return whether the run has ended by a stop condition. Any thread."""
        telemetry = self.telemetry
        return telemetry.is_finished and telemetry.stop_reason is not None

    def _why_stuck(self) -> str | None:
        """Return why a part has work and makes no progress, or None. Any thread."""
        limit_s = self.experiment.learner.watchdog_timeout_s
        return next(filter(None, (probe(limit_s) for probe in self._probes)), None)

    def _load_backend(self) -> Backend:
        learner = self.experiment.learner
        self.telemetry.phase = f"loading {learner.backend}"
        place = self.hosts.place if self.hosts is not None else None
        if place is not None:
            self.telemetry.phase = f"waiting for all {place.hosts} hosts at {place.coordinator}"
        devices = learner.devices
        split = None if devices.is_auto else Split(devices.inference, devices.training)
        backend = backends.use(
            learner.backend, learner.deterministic, learner.device, place, learner.precision, split,
            operation_threads(self.experiment, self.telemetry.actors_here),
        )  # fmt: skip
        backend.keep_compiled(self.run_directory.path / COMPILED_FOLDER)
        if self.hosts is not None:
            hosts = self.hosts
            hosts.join(backend, self._meanwhile)
            self.threads.start("hosts", lambda: hosts.keep_telling(self.threads.stopping))
        return backend

    def _meanwhile(self) -> None:
        """Give the trainer's state for a checkpoint, while training waits for other hosts."""
        if (components := self.components.result(0)) is not None:
            self.training.give_states(components)

    def _stop_note(self) -> StopNote | None:
        """Return why this host of a learner is to stop; None while it goes on."""
        stop, failure = self.run_stop, self.threads.failure
        if stop.reason is None and not self.threads.stopping.is_set():
            return None
        assert self.hosts is not None
        reason = str(failure) if failure else stop.reason or "a part failed"
        met = stop.met if failure is None else None
        return StopNote(
            self.hosts.place.host, met.text if met else reason, met.key if met else None
        )

    def _make_components(self, spec: EnvironmentSpec, backend: Backend) -> LearnerComponents:
        from seedbed.services.learner.components_factory import build_components

        return build_components(
            self.experiment, spec, backend, self.telemetry.replay, self._credentials, self.rank
        )

    def _build(self, spec: EnvironmentSpec, backend: Backend) -> LearnerComponents:
        """Build the components, with the state of the checkpoint and of the peers."""
        self.telemetry.phase = "building the model"
        divide_devices(self.experiment, spec, backend, self.run_directory.path)
        with suspended_collector():
            components = self._make_components(spec, backend)
        run = self.run_directory
        self._state.load(run, components)
        if self.hosts is not None:
            self.telemetry.phase = "meeting the other hosts"
            self.hosts.begin(backend, components)
            self.training.hosts = self.hosts.agreement
        run.resume_from = run.start_from = None  # frees the memory of their arrays
        if self.experiment.gossip.replicas > 1:
            self._meet_peers(components)
        self.telemetry.split = components.backend.split
        model = describe_model(
            self.experiment,
            components.backend,
            components.trainer,
            components.agent.body.network,
        )
        log.info("the model: %s", model)
        self.store.to_acting = components.backend.to_acting
        self.training.publish(components, self.counters.updates)
        self.telemetry.phase = "training"
        return components

    def _meet_peers(self, components: LearnerComponents) -> None:
        """Join the other learners, and begin with their parameters."""
        exchange = make_exchange(
            self.experiment, self.members, components, self.training, self.telemetry, self.threads,
            self.run_directory.path / "gossip", self._credentials, self.training.hosts,
        )  # fmt: skip
        self.telemetry.phase = "meeting the other learners"
        self.training.exchange = exchange
        self.run_stop.second_reading = exchange.second_reading
        # `end` closes an exchange that it sees. Otherwise it has seen none, and this thread ends.
        if self.threads.stopping.is_set():
            raise ShuttingDown
        exchange.start()

    # --- run -------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """End the run at the next poll. Safe in a signal handler.

        A run that is ending already skips the final evaluation.
        """
        self.evaluation.skip_final_evaluation = self.run_stop.reason is not None
        self.run_stop.request(reason)

    def summary_if_finished(self) -> dict[str, Any] | None:
        """Return the summary of a run that has met a stop condition before, or None.

        Such a run need not be started. Runs the final evaluation first, if a signal had
        interrupted it.
        """
        met = self.run_stop.check_conditions()
        if met is None:
            # It goes on: the summary of an earlier end would tell others that it is over.
            self.run_directory.remove_summary()
            return None
        if self.hosts is not None:
            self.hosts.tell_finished(self._load_backend(), StopNote(0, met.text, met.key))
        log.info("this run is finished (%s): to continue, raise that condition", met.text)
        stored = self.run_directory.read_summary()
        if stored is None:
            return self._end_again()
        evaluated = (stored["evaluation"] or {}).get("updates") == stored["updates"]
        if self._wants_final_evaluation() and not evaluated:
            return self._end_again()
        upload = self.run_directory.upload
        if upload is not None and not upload.is_done:
            upload.finish(lambda: self.run_stop.requested)
        self.telemetry.evaluation.newest = stored["evaluation"] or {}
        self.telemetry.stop_reason = stored["stop_reason"]
        return stored

    def _end_again(self) -> dict[str, Any]:
        """End a run that has not started, and tell how far its last evaluation is meanwhile."""
        self._serve_http()
        return self.end()

    def _wants_final_evaluation(self) -> bool:
        met, requested = self.run_stop.met, self.run_stop.requested
        # An evaluation costs money too: none after a cap on dollars. After a signal that came as a
        # condition was met, the same command evaluates.
        if met is None or requested or met.key == "dollars":
            return False
        # Nor of parameters that no update has changed.
        return self.experiment.evaluation.at_end and self.telemetry.counters.updates > 0

    @property
    def _is_first(self) -> bool:
        """Whether this process writes what there is once: checkpoints, the summary."""
        return self.hosts is None or self.hosts.is_first

    def _tick(self) -> None:
        self.telemetry.training.set_queue(self.queue.unrolls, self.queue.capacity_unrolls)
        self.telemetry.tick()

    def _poll(self) -> None:
        """Do what is due now. Never waits."""
        stuck = self._why_stuck()
        if stuck is not None:
            limit_s = self.experiment.learner.watchdog_timeout_s
            text = f"{stuck} (learner.watchdog_timeout_s is {limit_s:g})"
            self.threads.fail("watchdog", SeedbedError(ExitCode.THREAD_STUCK, text))
        if self.hosts is not None and (decision := self.hosts.decision) is not None:
            self.run_stop.follow(*decision)
        if self.components.result(0) is not None and self._is_first:
            self.checkpointer.poll(self.training.request_state)
            self.evaluation.poll(self.checkpointer)
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = max(self._next_tick + self.experiment.logging.interval_s, now)
            self._tick()
        self.telemetry.cost.account()  # so that stop.seconds is met in time
        self.run_stop.check_conditions(self._awaits_first_update())

    def _awaits_first_update(self) -> bool:
        """Return whether there is a first batch, and no update yet: the backend compiles it."""
        learner, options = self.experiment.learner, self.experiment.builtin_options
        spec = self.components.spec
        if self.counters.updates or spec is None or options is None or options.trains_from_replay:
            return False
        batch = learner.batch_size * learner.unroll_length * spec.action_repeat
        if self.counters.env_frames < batch:
            return False
        self._first_batch_at = self._first_batch_at or time.monotonic()
        return time.monotonic() < self._first_batch_at + learner.watchdog_timeout_s

    # --- end -------------------------------------------------------------------------------

    def _end_sessions(self, reason: str) -> None:
        """End the streams of the actors, if there are any."""

    def end(self) -> dict[str, Any]:
        """End the parts, write the last checkpoint, evaluate it, and return the summary.

        Raises:
            SeedbedError: the failure of the first part that failed. The last checkpoint is
                written all the same, where that is possible.
        """
        failure = self.threads.failure
        reason = self.run_stop.reason = self.run_stop.reason or "a part failed"
        log.info("ending: %s", reason)
        self.telemetry.cost.end_training()
        self.telemetry.phase = f"ending: {reason}"
        self.threads.stopping.set()
        with self._kept_up_to_date():
            return self._end(reason, failure)

    @contextmanager
    def _kept_up_to_date(self) -> Iterator[None]:
        """Write status and progress line from another thread, while this one ends the parts."""
        ended = threading.Event()

        def tick() -> None:
            while not ended.wait(self.experiment.logging.interval_s):
                self._tick()

        thread = threading.Thread(target=tick, name="status", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(JOIN_TIMEOUT_S)  # a volume that hangs may hold it

    def _end(self, reason: str, failure: SeedbedError | None) -> dict[str, Any]:
        self._end_sessions(reason)
        if self.training.exchange is not None:
            self.training.exchange.close()
        stop = self.run_stop
        is_asked = stop.requested or stop.met is not None
        may_lose = self.counters.updates > self._updates_at_start or not is_asked
        timeout_s = JOIN_TIMEOUT_S if may_lose else SIGNAL_JOIN_S
        if running := self.threads.join(timeout_s):
            text = f"{', '.join(running)} did not end within {timeout_s:g} s of: {reason}"
            if may_lose:
                failure = failure or SeedbedError(ExitCode.THREAD_STUCK, text)
            else:
                log.info("the training thread still compiles, and is left: no update was made")
                self.training.abandoned = True
        # An update that a lost host has broken has taken the optimizer's arrays with it.
        may_save = not running and (failure is None or failure.code is not ExitCode.HOSTS_FAILED)
        if self.hosts is not None:
            failure = self.hosts.end(failure, not running, lambda: stop.requested)
            reason = stop.reason or reason
        # The threads have ended, so the trainer belongs to this one.
        failure = self._save_and_evaluate(failure, may_save)
        self.quarantine.close()
        built = self.components.result(0)
        if self.training.abandoned and built and not built.agent.trains_from_replay:
            rest = self.counters.env_frames - self.counters.trained_frames
            rest -= self.counters.discarded_frames
            self.telemetry.sessions.on_discarded(rest, "the learner stopped")
        is_over = self.run_stop.met is not None and failure is None and self._is_first
        upload = self.run_directory.upload if is_over else None
        if upload is not None:  # before others see the end: the cost meter takes the pod away then
            self.telemetry.phase = f"uploading to {upload.url}"
            upload.send(lambda: stop.requested)
        self.telemetry.stop_reason = reason
        self._tick()
        summary = self.telemetry.summary()
        if is_over:
            try:
                self.run_directory.write_summary(summary)
            except OSError as error:
                log.warning("summary.json cannot be written: %s", error)
        self.telemetry.close()
        if upload is not None:
            upload.finish(lambda: stop.requested)
        if self._http is not None:
            self._http.close()
        if failure is not None:
            raise failure
        return summary

    def _save_and_evaluate(
        self, failure: SeedbedError | None, may_save: bool
    ) -> SeedbedError | None:
        """Write the last checkpoint and evaluate it. Returns the first failure, if any."""
        dropped_steps = self.queue.close()
        components = self.components.result(0)
        if components is not None:
            dropped_steps += components.source.pending_steps()
            frames = dropped_steps * components.spec.action_repeat
            self.telemetry.sessions.on_discarded(frames, "the learner stopped")
        if not self._is_first:
            return failure
        met = self.run_stop.met
        finished = met.text if met else None
        try:
            if may_save and components is not None:
                # After DIVERGED too: a skipped update leaves the parameters as they were, and
                # parameters that are not finite are refused.
                self.checkpointer.save_last(components.trainer.state(), finished)
            elif self._resumed and finished is not None and failure is None:
                # No update since. Without these counters, the next start would not be at its end.
                self.checkpointer.save_counters(self._updates_at_start, finished)
            else:
                return failure
        except SeedbedError as error:
            return failure or error
        if failure is None:
            self.evaluation.finish(self.checkpointer, self._wants_final_evaluation())
        return failure
