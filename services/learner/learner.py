"""The learner: its parts, how they are joined, and when the run is over."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from services.common import rpc
from services.common.config import Experiment
from services.common.config.load import dump_experiment
from services.common.exit_codes import ExitCode, SeedbedError
from services.common.lifecycle import Threads
from services.common.metrics_http import MetricsServer, start_metrics_server
from services.common.spec import EnvironmentSpec
from services.learner import backend as backends
from services.learner.backend.protocol import Backend
from services.learner.checkpoints.saving import Saver
from services.learner.checkpoints.store import Checkpoint
from services.learner.evaluation.side import SideEvaluation
from services.learner.model import Built, Model, ParameterStore, build, spec_from_json, spec_to_json
from services.learner.profiling import Profiler
from services.learner.runs.directory import RunDirectory
from services.learner.sessions.batcher import Batcher
from services.learner.sessions.servicer import InferenceServicer
from services.learner.stop import stop_reason
from services.learner.stuck import Stuck
from services.learner.telemetry import Counters, Telemetry
from services.learner.threads import POLL_S, InferenceThread, PrefetchThread, TrainingThread
from services.learner.unrolls.queue import UnrollQueue
from services.wire import inference_pb2_grpc as wire_grpc

log = logging.getLogger("seedbed.learner")

JOIN_S = 60.0  # longest wait for a thread to end: a training step that is under way
START_S = 60.0  # longest wait for the server to listen
GOODBYE_S = 3.0  # for actors to hear that it is over


class Learner:
    """One learner process. `start`, then `run` in the main thread until it is over.

    Args:
        run: the open run directory; its checkpoint, if any, is resumed from.
        listen: `host:port` or `unix:PATH`.
        frozen: never update the parameters (for tests and benchmarks).
    """

    def __init__(
        self, experiment: Experiment, run: RunDirectory, listen: str, frozen: bool = False
    ) -> None:
        self.experiment = experiment
        self.run_directory = run
        self.counters = Counters()
        self.telemetry = Telemetry(
            experiment, run.path, self.counters, actors_here=listen.startswith("unix:")
        )
        self.threads = Threads()
        learner = experiment.learner
        checkpoint = run.resume_from or run.start_from
        spec = spec_from_json(checkpoint.meta["spec"]) if checkpoint else None
        self.evaluation = SideEvaluation(experiment, run, self.telemetry)
        self._resume(run)
        self.model = Model(spec)
        self.store = ParameterStore()
        self.queue = UnrollQueue(learner.queue_batches * learner.batch_size)
        self.batcher = Batcher(
            learner.inference.batch_environments,
            learner.inference.max_batch_environments,
            learner.inference.max_wait_ms / 1000,
        )
        self.servicer = InferenceServicer(
            experiment, self.batcher, self.queue, self.telemetry, self.model, self._why_late
        )
        self.inference = InferenceThread(
            self.batcher, self.store, self.telemetry, self.servicer.deliver
        )
        self.prefetch = PrefetchThread(self.queue, learner.batch_size, self.telemetry)
        self.training = TrainingThread(
            self.store, self.prefetch, self.telemetry, learner.passes, frozen
        )
        self.saver = Saver(learner.checkpoint, run.store, self.telemetry, self._meta)
        self._stuck = Stuck(learner.stuck_timeout_s, self)
        self.profiler = Profiler(run.path / "profile", self.threads.stopping)
        self._http: MetricsServer | None = None
        self._listen = listen
        self._stop_reason: str | None = None
        self._reached: str | None = None  # the stop condition that was met
        self._next_tick = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._close_server: asyncio.Event | None = None
        self._address: str | None = None
        self._listening = threading.Event()

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
        self.counters.discarded_frames = self.counters.env_frames - self.counters.trained_frames
        self.telemetry.restore(meta["telemetry"])
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
        self.threads.start("wire", self._serve)
        if not self._listening.wait(START_S):
            raise SeedbedError(
                ExitCode.THREAD_STUCK, f"gRPC did not start on {self._listen} within {START_S:g} s"
            )
        if self.threads.failure is not None:
            raise self.threads.failure
        assert self._address is not None
        self.threads.start("training", self._train)
        self.threads.start("inference", self._infer)
        self.threads.start("prefetch", self._prefetch)
        return self._address

    def _serve_http(self) -> None:
        self._http = start_metrics_server(
            self.experiment.learner.metrics_port,
            self.telemetry.registry,
            unhealthy=self._stuck.cause,
            status=self.telemetry.status,
            profile=self.profiler.profile,
        )

    def _serve(self) -> None:
        try:
            asyncio.run(self._serve_async())
        except BaseException as error:  # before `start` looks for it
            self.threads.fail("wire", error)
        finally:
            self._listening.set()

    async def _serve_async(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._close_server = asyncio.Event()
        server = rpc.aio_server()
        wire_grpc.add_InferenceServicer_to_server(self.servicer, server)
        healthy = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        self._address = rpc.bind(server, self._listen)
        await server.start()
        try:
            await healthy.set("", health_pb2.HealthCheckResponse.SERVING)
            housekeeping = asyncio.create_task(self.servicer.housekeeping())
            housekeeping.add_done_callback(self._housekeeping_ended)
            self._listening.set()
            await self._close_server.wait()
            await healthy.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
            self.servicer.finish(
                self._stop_reason or "the learner stops", over=self._reached is not None
            )
        finally:
            # Or gRPC's own thread would keep the process from ending.
            await server.stop(GOODBYE_S)
        housekeeping.cancel()

    def _housekeeping_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.threads.fail("wire", task.exception() or RuntimeError())

    def _train(self) -> None:
        learner = self.experiment.learner
        self.telemetry.phase = f"loading {learner.backend}"
        backend = backends.use(learner.backend, learner.deterministic, learner.device)
        spec = None
        self.telemetry.phase = "waiting for the first actor"
        while spec is None and not self.threads.stopping.is_set():
            spec = self.model.wait_for_spec(POLL_S)
        if spec is not None:
            self.training.run(self._build(spec, backend), self.threads.stopping)

    def _build(self, spec: EnvironmentSpec, backend: Backend) -> Built:
        self.telemetry.phase = "building the model"
        built = build(self.experiment, spec, backend)
        run = self.run_directory
        if run.resume_from is not None:
            built.trainer.load(run.resume_from.arrays)
            built.inference.random.bit_generator.state = run.resume_from.meta["random"]
        elif run.start_from is not None:
            built.trainer.load(run.start_from.arrays, optimizer=False)
        run.resume_from = run.start_from = None  # their arrays are memory
        self.store.publish(built.trainer.params(), self.counters.updates)
        self.telemetry.phase = "training"
        self.model.set(built)
        return built

    def _wait_for_model(self) -> Built | None:
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
        return self.telemetry.waiting() or "the learner is busy"

    # --- run -------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """End the run at the next look of `run`. Safe in a signal handler."""
        if self._stop_reason is None:
            self._stop_reason = reason

    def finished(self) -> bool:
        """Whether the run that is resumed has met a stop condition already. Then it says so.

        There is nothing to start: `run` ends at once.
        """
        reached = stop_reason(self.experiment.stop, self.counters, self.telemetry)
        if reached is not None:
            log.info("this run is finished (%s): to go on, raise that condition", reached)
        return reached is not None

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

    def _tick(self) -> None:
        self.telemetry.set_depths(
            self.batcher.depth, self.queue.columns, self.queue.capacity_columns
        )
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
        self._reached = stop_reason(self.experiment.stop, self.counters, self.telemetry)
        if self._reached is not None:
            self.stop(self._reached)

    def _end(self) -> dict[str, Any]:
        reached = self._reached
        failure = self.threads.failure
        reason = self._stop_reason or "a part failed"
        log.info("ending: %s", reason)
        self._stop_reason = reason
        self.telemetry.phase = f"ending: {reason}"
        self.threads.stopping.set()
        self.batcher.close()
        if self._loop is not None and self._close_server is not None:
            self._loop.call_soon_threadsafe(self._close_server.set)
        running = self.threads.join(JOIN_S)
        dropped = self.queue.close() + self.prefetch.pending_steps()
        built = self.model.built(0) if self.model.is_built else None
        if built is not None:
            self.telemetry.on_discarded(dropped * built.spec.action_repeat, "the learner stopped")
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
                self.saver.save_last(built.trainer.state(), finished=reached)
            except SeedbedError as error:
                failure = failure or error
            else:
                if failure is None:
                    # An evaluation costs as well: after a cap on dollars there is none.
                    wanted = reached is not None and not reached.startswith("stop.dollars")
                    self.evaluation.last(self.saver, wanted)
        self.telemetry.stop_reason = reason
        self._tick()
        summary = self.telemetry.summary()
        self.telemetry.close()
        if self._http is not None:
            self._http.close()
        if failure is not None:
            raise failure
        return summary

    def _meta(self) -> dict[str, Any]:
        """What a checkpoint keeps besides arrays; JSON."""
        built = self.model.built(0)
        assert built is not None
        return {
            "counters": self.counters.to_json(),
            "telemetry": self.telemetry.extra_state(),
            "spec": spec_to_json(built.spec),
            "random": built.inference.random.bit_generator.state,
            "experiment": dump_experiment(self.experiment),
            "best_evaluation": self.evaluation.best,
        }
