"""Hosts of one learner: the parent of a host, and all hosts of a run on this machine."""

import logging
import re
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from typing import IO, Any

from typing_extensions import override

from seedbed.config import Experiment
from seedbed.launch.learners_view import read_json
from seedbed.launch.local_processes import LocalProcesses, supervise
from seedbed.launch.supervisor import describe_exit, start_seedbed
from seedbed.runs.directory import RunDirectory
from seedbed.runs.layout import host_directory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.formats import number as in_words
from seedbed.runtime.formats import si_number
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.progress_line import ProgressLine, returns
from seedbed.telemetry.status import STATUS_FILE

log = logging.getLogger(__name__)

_LAST_LINES = 200
# What JAX logs before it ends a process whose peers are lost.
_SILENT = re.compile(r"stopped sending heartbeats\)?:\s*((?:(?:task:?\s*)?\d+[,\s]+)+)")
_LEADER = "Failed to send RPC to coordination service"
_REGISTER = "CoordinationService/RegisterTask"


def why_lost(text: str, hosts: int) -> str | None:
    """Return in words which host was lost, by the log of one that ended for it; None: unknown."""
    if silent := _SILENT.search(text):
        lost = " and ".join(f"host {rank}" for rank in sorted(set(re.findall(r"\d+", silent[1]))))
        return f"{lost} of {hosts} was lost: it gave no sign of life"
    if _REGISTER in text:
        return f"not all of the {hosts} hosts came"
    if _LEADER in text:
        return f"host 0 of {hosts} was lost: it no longer answers"
    return None


def run_host(arguments: Sequence[str], host: int, hosts: int) -> int:
    """Run a host of a learner in a child process, and return its exit code.

    JAX ends a process by SIGABRT when another host is lost, and Python cannot prevent that. So
    this process says which one it was.

    Args:
        arguments: of the child, subcommand first.
        host: number of the host.
        hosts: number of hosts.

    Raises:
        SeedbedError: HOSTS_FAILED: a signal has ended the child.
    """
    child = start_seedbed(*arguments, stderr=subprocess.PIPE)

    def forward(number: int, _: object) -> None:
        child.send_signal(signal.SIGTERM if number == signal.SIGINT else number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, forward)
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    assert child.stderr is not None
    for line in child.stderr:
        lines.append(line.decode(errors="replace"))
        sys.stderr.buffer.write(line)
        sys.stderr.flush()
    code = child.wait()
    if code < 0:
        why = f"its process ended with {describe_exit(code)}"
        if code == -signal.SIGABRT:
            why = why_lost("".join(lines), hosts) or why
        raise SeedbedError(ExitCode.HOSTS_FAILED, f"host {host}: {why}")
    return int(code)


def train_hosts(
    experiment: Experiment, directory: RunDirectory, arguments: Sequence[str], rank: int = 0
) -> dict[str, Any]:
    """Train with all hosts of the learner on this machine; return the run's summary.

    Args:
        experiment: the resolved experiment, with `learner.hosts` hosts.
        directory: the run directory, which host 0 opens when this process has closed it.
        arguments: more arguments of `seedbed train` for host 0.
        rank: rank of the learner among `gossip.replicas`.

    Raises:
        SeedbedError: a host failed in a way that a restart cannot mend, or too often.
    """
    directory.resume_from = directory.start_from = None  # host 0 reads them again
    directory.close()
    hosts = LocalHosts(experiment, directory, arguments, rank)
    signals = supervise(hosts, experiment.logging.interval_s, ProgressLine(sys.stderr))
    summary = dict(hosts.summary() or _without_summary(directory))
    if signals and str(summary["stop_reason"]).startswith("signal"):
        summary["stop_reason"] = f"signal {signals[0]}"  # the hosts had theirs from this process
    return summary


def _without_summary(directory: RunDirectory) -> dict[str, Any]:
    """Return the summary of a run whose first host has printed none."""
    status = read_json(directory.path / STATUS_FILE) or {}
    return {
        **Counters().to_json(),
        **status.get("counters", {}),
        "env_fps": None,
        "mean_return": None,
        "mean_return_episodes": 0,
        "evaluation": None,
        "stop_reason": "signal, before there was anything to sum up",
    }


class LocalHosts(LocalProcesses):
    """The hosts of a learner on this machine. When one ends, all are started again.

    Args:
        experiment: the resolved experiment.
        directory: the run directory, which is host 0's; the others' are in it.
        arguments: more arguments of `seedbed train` for host 0.
        rank: rank of the learner among `gossip.replicas`.
    """

    name = "host"
    too_many = ExitCode.HOSTS_FAILED
    fatal = (*LocalProcesses.fatal, ExitCode.ACTORS_FAILED)

    def __init__(
        self,
        experiment: Experiment,
        directory: RunDirectory,
        arguments: Sequence[str],
        rank: int = 0,
    ) -> None:
        super().__init__(experiment.learner.hosts, directory.logs)
        self._experiment, self._run, self._arguments = experiment, directory, arguments
        self._rank, self._coordinator = rank, ""

    @override
    def start(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._coordinator = f"127.0.0.1:{free.getsockname()[1]}"
        self._completed.clear()
        super().start()

    @override
    def start_process(self, index: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        path = host_directory(self._run.path, index)
        arguments = ["train", str(self._run.experiment_yaml), "--host", str(index)]
        arguments += ["--rank", str(self._rank)]
        arguments += ["--run-dir", str(path), *(() if index else self._arguments)]
        for key, value in self._settings(index).items():
            arguments += ["--set", f"{key}={value}"]
        with self.output_file(index).open("wb") as output:
            return start_seedbed(*arguments, stdout=output, stderr=errors)

    def _settings(self, host: int) -> dict[str, Any]:
        """Return the settings in which a host differs from the experiment."""
        experiment = self._experiment
        settings: dict[str, Any] = {"learner.coordinator": self._coordinator}
        if host and (directory := experiment.learner.replay.directory):
            settings["learner.replay.directory"] = f"{directory}/host-{host}"
        if port := experiment.learner.metrics_port:
            settings["learner.metrics_port"] = port + host
        if port := experiment.actor.metrics_port:
            settings["actor.metrics_port"] = port + host * experiment.actor.processes
        return settings

    @override
    def poll(self) -> None:
        """Start all hosts again, if one has failed or was stopped alone.

        Raises:
            SeedbedError: as `on_exit`.
        """
        codes = {index: process.poll() for index, process in self._processes.items()}
        failed = {index: code for index, code in codes.items() if code}
        if failed:
            # A host that JAX has aborted is not the one that was lost.
            index = min(failed, key=lambda i: (failed[i] in _FOLLOWS, i))
            self._end_all(at_once=(failed[index] or 0) < 0)
            self.on_exit(index, failed[index] or 0)
            self.start()
        elif None not in codes.values():
            summary = self.summary()
            if summary and str(summary["stop_reason"]).startswith("signal "):
                log.warning("a signal has ended the hosts, and not this process: started again")
                self.start()
            else:
                self._completed |= codes.keys()

    def _end_all(self, at_once: bool) -> None:
        """End the hosts that still run, at once where nothing can be saved any more."""
        if at_once:
            for process in self._processes.values():
                process.kill()
        self.stop()

    @override
    def last_words(self, index: int) -> str:
        path = self.log_file(index)
        text = path.read_text(errors="replace")[-20_000:] if path.exists() else ""
        lost = why_lost(text, self._count) if self._processes[index].poll() == _ABORTED else None
        return f"{lost or 'all hosts end with it'}; see {path}"

    @override
    def line(self) -> list[str]:
        status = read_json(self._run.path / STATUS_FILE)
        running = f"{self.running} of {self._count} hosts"
        if not status:
            return [running, "starting"]
        numbers = status["numbers"]
        waiting = status.get("waiting_for")
        return [
            returns(numbers.get("mean_return"), numbers.get("mean_return_episodes")),
            running,
            f"{si_number(numbers.get('env_frames') or 0)} frames",
            f"{in_words(numbers.get('env_fps_10s'))} frames/s",
            *([f"now: {waiting}"] if waiting else []),
        ]

    def summary(self) -> Any:
        """Return the summary that host 0 printed at its end; None where there is none."""
        return read_json(self.output_file(0))


_ABORTED = -int(signal.SIGABRT)
# How a host ends because of another one.
_FOLLOWS = (_ABORTED, int(ExitCode.HOSTS_FAILED))
