"""The learner's process: sessions, inference, prefetch and training in threads."""

from __future__ import annotations

import logging
from typing import Any

from typing_extensions import override

from seedbed.config import Experiment
from seedbed.gossip.exchange import ShuttingDown
from seedbed.rpc.credentials import Credentials
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.threads import POLL_S, Threads
from seedbed.services.learner.base import JOIN_TIMEOUT_S, LearnerBase
from seedbed.services.learner.components import LearnerComponents
from seedbed.services.learner.inference.thread import InferenceThread
from seedbed.services.learner.sessions.batcher import Batcher
from seedbed.services.learner.sessions.server import InferenceServer
from seedbed.services.learner.sessions.servicer import InferenceServicer
from seedbed.services.learner.sessions.slots import SlotAllocator
from seedbed.services.learner.unrolls.synchronous_queue import SynchronousUnrollQueue

log = logging.getLogger(__name__)


class Learner(LearnerBase):
    """One learner process. `start`, then `run` in the main thread until the run ends.

    Args:
        experiment: the experiment.
        run: the open run directory. Its checkpoint, if any, is resumed from.
        listen: `host:port` or `unix:PATH`.
        frozen: never update the parameters (for tests and benchmarks).
        credentials: credentials of this process; None: plain text, without tokens.
        rank: number of this learner among `gossip.replicas`, from 0.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        listen: str,
        frozen: bool = False,
        credentials: Credentials | None = None,
        rank: int = 0,
    ) -> None:
        super().__init__(experiment, run, frozen, credentials, rank, listen.startswith("unix:"))
        settings = experiment.learner.inference
        self.batcher = Batcher(
            settings.batch_envs, settings.max_batch_envs, settings.max_wait_ms / 1000
        )
        slots = SlotAllocator(settings.slots)
        if isinstance(self.queue, SynchronousUnrollQueue):
            slots = SlotAllocator(experiment.learner.batch_size, "learner.batch_size")
        self.servicer = InferenceServicer(
            experiment, self.batcher, self.queue, self.telemetry, self.components,
            self._why_actions_wait, slots,
        )  # fmt: skip
        self.server = InferenceServer(self.servicer, listen, self.threads, credentials)
        self.inference = InferenceThread(
            self.batcher, self.store, self.telemetry, self.servicer.send_actions
        )
        self.watchdog.probes += [self.inference.probe, self.prefetch.probe]
        self._listen = listen
        self._lingers = False

    # --- start -----------------------------------------------------------------------------

    def start(self) -> str:
        """Start everything, and return the address that actors connect to.

        Raises:
            SeedbedError: BIND, or the failure of a part that has failed in the meantime.
        """
        self._serve_http()
        address = self.server.start(serving=self.run_directory.resume_from is None)
        self.threads.start("training", self._train)
        self.threads.start("inference", self._infer)
        self.threads.start("prefetch", self._prefetch)
        return address

    @override
    def _unready(self) -> str | None:
        # A learner without actors is ready, and so is one whose run has ended.
        if self.server.address is None:
            return "not listening yet"
        if self.run_directory.resume_from is not None and not self._lingers:
            return f"restoring the checkpoint: {self.telemetry.phase}"
        return None

    def _train(self) -> None:
        backend = self._load_backend()
        spec = None
        self.telemetry.phase = "waiting for the first actor"
        while spec is None and not self.threads.stopping.is_set():
            spec = self.components.wait_for_spec(POLL_S)
        if spec is not None:
            try:
                components = self._build(spec, backend)
            except ShuttingDown:
                return
            self.server.set_serving()
            self.components.set_result(components)
            self.training.run(components, self.threads.stopping)

    def _wait_for_components(self) -> LearnerComponents | None:
        """Return the components, or None if the learner stops before they are built."""
        components = None
        while components is None and not self.threads.stopping.is_set():
            components = self.components.result(POLL_S)
        return components

    def _infer(self) -> None:
        components = self._wait_for_components()
        if components is not None:
            self.inference.run(components.inference, self.threads.stopping)

    def _prefetch(self) -> None:
        components = self._wait_for_components()
        if components is not None:
            self.prefetch.run(components, self.threads.stopping)

    def _why_actions_wait(self) -> str:
        missing = self.queue.missing if isinstance(self.queue, SynchronousUnrollQueue) else 0
        if missing:
            return f"the round waits for {missing} environments that have not come"
        return self.telemetry.waiting() or "the learner is busy"

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
    def _requests_waiting(self) -> int:
        return self.batcher.depth

    @override
    def _end_sessions(self, reason: str) -> None:
        self.batcher.close()
        self.server.end_streams(reason, over=self.run_stop.met is not None)
        self.server.close()

    def serve_until_stopped(self) -> None:
        """Tell actors that the experiment is finished; serve metrics and status until `stop`.

        Called after `run`. Returns at once unless a stop condition was met. Kubernetes restarts a
        container that exits, so a learner in a cluster lingers.
        """
        met = self.run_stop.met
        if met is None or self.run_stop.requested:
            return
        self._lingers, self.run_stop.reason = True, None
        log.info("the experiment is over (%s): staying until a signal", met.text)
        self.threads = Threads()
        self.server = InferenceServer(self.servicer, self._listen, self.threads, self._credentials)
        self._serve_http()
        self.server.start()
        self.server.end_streams(met.text, over=True)
        while self.run_stop.reason is None and not self.threads.stopping.wait(POLL_S):
            pass
        self.server.close()
        self.threads.join(JOIN_TIMEOUT_S)
        if self._http is not None:
            self._http.close()
        if self.threads.failure is not None:
            raise self.threads.failure
