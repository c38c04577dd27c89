"""What a run can try before it loads a backend: the environment, ports, free disk."""

import shutil
import socket
from contextlib import suppress
from pathlib import Path

from seedbed.config import Experiment
from seedbed.envs.probe import EnvironmentProbe
from seedbed.runs.directory import RunDirectory
from seedbed.runtime.exit_codes import ConfigError, ExitCode, RunDirectoryError, SeedbedError

# Longest wait for the environment; a slower one is tried beside the loading.
_PROBE_S = 10.0
# Least free space: logs and status of a run that writes no large checkpoint.
_LEAST_BYTES = 50 * 2**20


def check_environment(probe: EnvironmentProbe | None) -> None:
    """Check that the environment can be made, reset and stepped, where that is known soon.

    Args:
        probe: begun before; None where a checkpoint has the sizes.

    Raises:
        SeedbedError: ENVIRONMENT, with the sentence of the environment.
    """
    if probe is not None and probe.wait(timeout_s=_PROBE_S) is None and probe.refused:
        raise SeedbedError(ExitCode.ENVIRONMENT, probe.failure)


def least_free(run: Path) -> int:
    """Return the bytes that must be free for logs and the next two checkpoints of a run.

    Args:
        run: The run directory.
    """
    sizes = [0]
    for file in (run / "checkpoints").glob("checkpoint-*.safetensors"):
        with suppress(FileNotFoundError):  # another process trains, and has replaced it
            sizes.append(file.stat().st_size)
    return max(_LEAST_BYTES, 2 * max(sizes))


def check_disk(directory: RunDirectory) -> None:
    """Check that the next checkpoints fit beside the newest one.

    Args:
        directory: the open run directory.

    Raises:
        SeedbedError: RUN_DIRECTORY, with both numbers.
    """
    needed = least_free(directory.path)
    free = shutil.disk_usage(directory.path).free
    if free < needed:
        raise RunDirectoryError(
            f"{directory.path} has {free / 2**20:.0f} MiB free, and logs and two checkpoints need "
            f"{needed / 2**20:.0f} MiB: free or enlarge the volume, or choose another --run-dir"
        )


def check_ports(experiment: Experiment) -> None:
    """Check that no two processes of this machine serve metrics at one port.

    Raises:
        SeedbedError: CONFIG, with the ports.
    """
    actor, ours = experiment.actor, experiment.learner.metrics_port
    first, last = actor.metrics_port, actor.metrics_port + actor.processes - 1
    if first and (last > 65535 or first <= ours <= last):
        raise ConfigError(
            f"actor.metrics_port {first} with actor.processes {actor.processes} takes the ports "
            f"to {last}, which must end at 65535 and leave out learner.metrics_port {ours}"
        )


def check_address(address: str) -> None:
    """Check that an address can be listened on.

    Args:
        address: `host:port`; a `unix:PATH` is left to the server.

    Raises:
        SeedbedError: BIND, the port is taken, or the address is not of this machine.
    """
    host, colon, port = address.rpartition(":")
    if address.startswith("unix:") or not colon or not port.isdigit():
        return
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((host, int(port)))
    except OSError as error:
        raise SeedbedError(
            ExitCode.BIND,
            f"cannot listen on {address}: {error.strerror or error}; end the process that listens "
            "there, or choose another address",
        ) from error
