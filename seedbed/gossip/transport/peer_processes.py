"""Which process is a peer: the one that is connected, until its streams end or are silent."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from seedbed.rpc.streams import StreamRejected


@dataclass
class _Process:
    incarnation: int
    heard_s: float
    tasks: dict[str, asyncio.Task[Any]] = field(default_factory=dict)  # by method

    def is_open(self) -> bool:
        return any(not task.done() for task in self.tasks.values())


class PeerProcesses:
    """The process of each peer that has streams to this learner. Event loop only.

    An incarnation is a number that a process states about itself, so that it ends nobody: another
    process is admitted once the one before has no open stream, as after a kill, or has been silent
    for the deadline, as after the loss of its machine.

    Args:
        deadline_s: Silence after which a process with open streams is given up, in seconds.
        now: Clock, in seconds.
    """

    def __init__(self, deadline_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._deadline_s, self._now = deadline_s, now
        self._processes: dict[int, _Process] = {}

    def admit(
        self, rank: int, incarnation: int, method: str, task: asyncio.Task[Any]
    ) -> tuple[bool, list[asyncio.Task[Any]]]:
        """Admit a stream of a peer's process.

        Args:
            rank: Rank of the peer.
            incarnation: Number of its process.
            method: Name of the method.
            task: Serves the stream.

        Returns:
            Whether it is another process than before, and the tasks of streams that it replaces.

        Raises:
            StreamRejected: ALREADY_EXISTS: another process is connected as this peer.
        """
        process, replaced = self._processes.get(rank), []
        is_new = process is None or process.incarnation != incarnation
        if process is None or is_new:
            if process is not None:
                self._check_silent(rank, process)
                replaced = list(process.tasks.values())
            process = self._processes[rank] = _Process(incarnation, self._now())
        elif method in process.tasks:
            replaced = [process.tasks[method]]
        process.tasks[method], process.heard_s = task, self._now()
        return is_new, replaced

    def _check_silent(self, rank: int, process: _Process) -> None:
        silent_s = self._now() - process.heard_s
        if process.is_open() and silent_s < self._deadline_s:
            raise StreamRejected(
                f"another process is connected as learner {rank}, and sent a message "
                f"{silent_s:.1f} s ago: it is replaced once its streams have ended, or after "
                f"{self._deadline_s:g} s of silence (gossip.deadline_s)",
                grpc.StatusCode.ALREADY_EXISTS,
            )

    def on_message(self, rank: int) -> None:
        """Note that the process of a peer has sent a message."""
        self._processes[rank].heard_s = self._now()

    def incarnation(self, rank: int) -> int:
        """Return the incarnation of the process that is connected as a peer."""
        return self._processes[rank].incarnation
