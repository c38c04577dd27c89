"""The learner's process: sessions, inference, prefetch and training in threads."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

from seedbed.config import Experiment
from seedbed.envs.probe import EnvironmentProbe
from seedbed.gossip.exchange import ShuttingDown
from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.threads import POLL_S, Threads
from seedbed.services.learner.base import LearnerBase
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.inference.thread import InferenceThread
from seedbed.services.learner.sessions.handshake import largest_message
from seedbed.services.learner.sessions.server import InferenceServer
from seedbed.services.learner.sessions.servicer import InferenceServicer
from seedbed.services.learner.sessions.unroll_servicer import UnrollServicer
from seedbed.services.learner.unrolls.synchronous_queue import SynchronousUnrollQueue
from seedbed.telemetry.status import write_status

log = logging.getLogger(__name__)

# Longest wait with listening for the spec, in seconds.
_PROBE_S = 10.0


class Learner(LearnerBase):
    """One learner process. `start`, then `run` in the main thread until the run ends.

    Args:
        experiment: the experiment.
        run: the open run directory. Its checkpoint, if any, is resumed from.
        listen: `host:port` or `unix:PATH`.
        frozen: never update the parameters (for tests and benchmarks).
        credentials: credentials of this process.
        rank: number of this learner among `gossip.replicas`, from 0.
        also_listen: further addresses to listen on.
        host: number of this host among `learner.hosts`, from 0.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        listen: str,
        frozen: bool = False,
        credentials: Credentials = PLAIN,
        rank: int = 0,
        also_listen: Sequence[str] = (),
        host: int = 0,
    ) -> None:
        here = listen.startswith("unix:")
        super().__init__(experiment, run, frozen, credentials, rank, here, host)
        parts = experiment, self.queue, self.telemetry, self.components
        self.servicer: InferenceServicer
        if experiment.learner.inference.location == "actor":
            self.servicer = UnrollServicer(*parts, self.store)
        else:
            self.servicer = InferenceServicer(*parts)
        self._listen, self._also_listen = listen, also_listen
        self.server = self._new_server()
        self.inference = InferenceThread(
            self.servicer.batchers.all[0],
            self.store,
            self.telemetry,
            self.servicer.answers.send,
            # The groups of a round begin together, and join a batch on its way to the thread.
            may_leave_out=not isinstance(self.queue, SynchronousUnrollQueue),
        )
        self._probes += [self.inference.probe, self.prefetch.probe]
        self._lingers = False

    # --- start -----------------------------------------------------------------------------

    def start(self, probe: EnvironmentProbe | None = None) -> str:
        """Start everything, and return the address that actors connect to.

        Args:
            probe: brings the spec, where no checkpoint does.

        Raises:
            SeedbedError: BIND, or the failure of a part that has failed in the meantime.
        """
        self._serve_http()
        components = self.components
        if probe is not None and components.spec is None:
            components.probing = True
            self.threads.start("probe", lambda: self._read_spec(probe))
            self.threads.start("training", self._train)
            deadline = time.monotonic() + _PROBE_S
            while components.probing and time.monotonic() < deadline:
                components.wait_for_spec(POLL_S / 10)
            address = self._start_server()
        else:
            address = self._start_server()
            self.threads.start("training", self._train)
        if self.experiment.learner.inference.location == "learner":
            self.threads.start("inference", lambda: self._run_when_built(self.inference.run))
        self.threads.start("prefetch", self._prefetch)
        return address

    def _new_server(self) -> InferenceServer:
        server = InferenceServer(self.servicer, self._listen, self.threads, self._credentials)
        server.also_listen = self._also_listen
        return server

    def _start_server(self) -> str:
        """Start the server. The spec, where it is known, bounds its messages."""
        if self.components.spec is not None:
            self.server.max_message_bytes = largest_message(
                self.components.spec, self.experiment.learner
            )
        return self.server.start(serving=self.run_directory.resume_from is None)

    @override
    def _unready(self) -> str | None:
        # A learner without actors is ready, and so is one whose run has ended.
        if self.server.address is None:
            return "not listening yet"
        if self.run_directory.resume_from is not None and not self._lingers:
            return f"restoring the checkpoint: {self.telemetry.phase}"
        return None

    def _read_spec(self, probe: EnvironmentProbe) -> None:
        """Fix the spec that the probe finds. Otherwise the first actor brings it."""
        try:
            spec = probe.wait(
                lambda: self.run_stop.reason is not None or self.threads.stopping.is_set()
            )
            if spec is not None:
                self.components.fix_spec(spec)
                sizes = f"observation {spec.observation}, {spec.action}"
                log.info("the environment %s has %s", spec.name, sizes)
                for line in probe.warnings:
                    log.warning("%s: %s", spec.name, line)
            else:
                text = "the environment cannot be made here, so the first actor says its sizes: %s"
                log.warning(text, probe.failure)
        finally:
            self.components.probing = False

    def _train(self) -> None:
        backend = self._load_backend()
        spec = None
        self.telemetry.phase = "waiting for the first actor"
        while spec is None and not self.threads.stopping.is_set():
            spec = self.components.wait_for_spec(POLL_S)
        if spec is not None:
            try:
                components = self._build(spec, backend)
                self._rehearse(components)
            except BaseException as error:
                if self.hosts is not None:
                    self.hosts.leave()
                if isinstance(error, ShuttingDown):
                    return
                raise
            for acting in range(1, len(components.inference)):
                self._start_inference(acting)
            self.server.set_serving()
            self.components.set_result(components)
            self.training.run(components, self.threads.stopping)

    def _rehearse(self, components: LearnerComponents) -> None:
        """Compile inference for one group, before the first step of an actor waits for it."""
        self.telemetry.phase = "compiling inference"
        for acting, step in enumerate(components.inference):
            params, _ = self.store.newest(acting)
            step.rehearse(params, self.experiment.actor.envs_per_group)
        self.telemetry.phase = "training"

    def _start_inference(self, acting: int) -> None:
        """Start the thread of another device that acts."""
        batcher, send = self.servicer.batchers.add(), self.servicer.answers.send
        thread = InferenceThread(batcher, self.store, self.telemetry, send, acting)
        self._probes.append(thread.probe)
        self.threads.start(f"inference-{acting}", lambda: self._run_when_built(thread.run))

    def _prefetch(self) -> None:
        self._run_when_built(self.prefetch.run)

    def _run_when_built(self, run: Callable[[LearnerComponents, threading.Event], None]) -> None:
        """Run a part once the components are built, unless the learner stops before."""
        stopping = self.threads.stopping
        while not stopping.is_set():
            components = self.components.result(POLL_S)
            if components is not None:
                run(components, stopping)

    # --- run -------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Watch the parts until the run ends, end them, and return the summary.

        Raises:
            SeedbedError: the failure of the first part that failed. The last checkpoint is
                written all the same, where that is possible.
        """
        while self.run_stop.reason is None and not self.threads.stopping.wait(POLL_S / 2):
            try:
                self._poll()
            except Exception as error:  # every way out goes through `end`
                self.threads.fail("main", error)
        return self.end()

    @override
    def _tick(self) -> None:
        self.telemetry.inference.waiting = sum(each.depth for each in self.servicer.batchers.all)
        super()._tick()

    @override
    def _end_sessions(self, reason: str) -> None:
        for batcher in self.servicer.batchers.all:
            batcher.close()
        self.server.end_streams(reason, over=self.run_stop.met is not None)
        self.server.close()
        # The frames of a session are accounted for at its end, so the wire has its whole goodbye.
        self.server.join()

    def serve_until_stopped(self) -> None:
        """Tell actors that the experiment is finished; serve metrics and status until `stop`.

        Called after `run`. Returns at once unless a stop condition was met. Kubernetes restarts a
        container that exits, so a learner in a cluster lingers. What that costs is in the run's
        files at its end.
        """
        met = self.run_stop.met
        if met is None or self.run_stop.requested:
            return
        self._lingers, self.run_stop.reason = True, None
        log.info("the experiment is over (%s): staying until a signal", met.text)
        self.threads = Threads()
        self.server = self._new_server()
        self._serve_http()
        self.server.start()
        self.server.end_streams(met.text, over=True)
        while self.run_stop.reason is None and not self.threads.stopping.wait(POLL_S):
            self.telemetry.cost.account()
        self._write_bill()
        self.server.close()
        self.server.join()
        if self._http is not None:
            self._http.close()
        if self.threads.failure is not None:
            raise self.threads.failure

    def _write_bill(self) -> None:
        """Bring the dollars of status.json and summary.json up to date."""
        self.telemetry.cost.account()
        try:
            write_status(self.run_directory.path, self.telemetry.status())
            summary = self.run_directory.read_summary()
            if summary is not None and self._is_first:
                dollars = self.telemetry.whole_counters().dollars
                self.run_directory.write_summary({**summary, "dollars": dollars})
        except OSError as error:
            log.warning("the bill of the end cannot be written: %s", error)
