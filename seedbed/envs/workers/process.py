"""Worker process as its parent sees it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, NamedTuple

from seedbed.config.environment import Environment
from seedbed.envs.workers import worker
from seedbed.envs.workers.worker import COMMAND, DONE, RESET


class Share(NamedTuple):
    """Arguments of one worker.

    Attributes:
        environment: the experiment's section.
        worker: index of the worker in its group.
        workers: W of the group.
        num_envs: E of the group.
        rows: environments of the worker.
        seeds: of these environments.
        max_failures: failures within ten minutes after which the worker gives up.
        memory: descriptor of the group's block.
        needs_lives: as of `make_vector_env`.
    """

    environment: Environment
    worker: int
    workers: int
    num_envs: int
    rows: slice
    seeds: list[int]
    max_failures: int
    memory: int
    needs_lives: bool

    @property
    def name(self) -> str:
        """The worker and the numbers of its environments, for messages."""
        last = self.rows.stop - 1
        them = f"{self.rows.start} to {last}" if last > self.rows.start else f"{last}"
        return f"worker {self.worker} (environments {them} of {self.environment.id})"


class WorkerProcess:
    """One worker: a process, and a socket for commands and answers.

    The process has a process group of its own, so that Ctrl-C is the parent's, and ends with the
    thread that starts it.

    Args:
        share: its environments.
        incarnation: of the reset that follows once the environments are made, for a worker that
            takes the place of another one; None: none follows.

    Attributes:
        share: as above.
        ended: descriptor that is readable once the process has ended.
        channel: socket, readable once there is a message.
        starting: the environments have not been made yet.
        since: `time.monotonic` of the start or of the newest command.
    """

    _buffer = bytearray(1 << 17)

    def __init__(self, share: Share, incarnation: int | None = None) -> None:
        self.share = share
        self._incarnation = incarnation
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = {
            "parent": os.getpid(),
            "path": sys.path,
            "environment": share.environment.model_dump_json(),
            "worker": share.worker,
            "workers": share.workers,
            "num_envs": share.num_envs,
            "first": share.rows.start,
            "seeds": share.seeds,
            "max_failures": share.max_failures,
            "socket": theirs.fileno(),
            "memory": share.memory,
            "needs_lives": share.needs_lives,
        }
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", worker.__name__, json.dumps(arguments)],
                env=dict(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=2,  # stdout is the command's, for its result
                pass_fds=(theirs.fileno(), share.memory),
                process_group=0,
            )
        self.ended = os.pidfd_open(self._process.pid)
        self.starting = True
        self.since = time.monotonic()

    def send(self, kind: bytes, incarnation: int = 0) -> None:
        """Send a command; a worker that has ended is found by `ended`.

        Args:
            kind: one of the commands of `worker`.
            incarnation: of a reset.
        """
        self.since = time.monotonic()
        with suppress(BrokenPipeError, ConnectionResetError):
            self.channel.send(COMMAND.pack(kind, incarnation))

    def receive(self) -> dict[str, Any] | None:
        """Return the message that has come; empty: the command is done; None: there is none."""
        try:
            # A process that the worker has left behind may hold the other end open.
            size = self.channel.recv_into(self._buffer, flags=socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionResetError):
            size = 0
        if not size:
            return None
        if self._buffer[:size] == DONE:
            return {}
        message: dict[str, Any] = json.loads(self._buffer[:size])
        if "spec" in message:
            self.starting = False
            if self._incarnation is not None:
                self.send(RESET, self._incarnation)
        return message

    @property
    def resets(self) -> bool:
        """Return whether a reset follows once the environments are made."""
        return self._incarnation is not None

    def kill(self) -> str:
        """End the process, if it has not ended; return how it ended, in words."""
        self._process.kill()
        code = self._process.wait()
        self.channel.close()
        if self.ended >= 0:
            os.close(self.ended)
            self.ended = -1
        if code == -signal.SIGKILL:
            return "signal SIGKILL: killed, or out of memory"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def close(self, deadline: float) -> None:
        """Let the worker close its environments, and end it.

        Args:
            deadline: `time.monotonic` at which it is killed.
        """
        self.channel.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        self.kill()
