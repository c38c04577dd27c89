"""Programs that releases need. A failure of one is a sentence that says what to do."""

import os
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from seedbed.config.schema import NAME_LETTERS
from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError

_INSTALL = {
    "helm": "install Helm 3 or 4 (https://helm.sh/docs/intro/install)",
    "kubectl": "install kubectl (https://kubernetes.io/docs/tasks/tools)",
    "docker": "install Docker or Podman, or leave --registry out for images that are there already",
}
_HINT = "Use --debug flag"  # the last line of Helm's
# What a program says of a cause, and what to do.
_ADVICE = (
    (
        "unreachable|connection refused|no configuration|current-context|no such host|i/o timeout"
        "|unable to connect|invalid configuration",
        "no cluster answers: set KUBECONFIG, or on GKE run `gcloud container clusters "
        "get-credentials CLUSTER`",
    ),
    (
        "must be logged in|unauthorized: you must|exec plugin|executable gke-gcloud-auth",
        "the cluster does not know this account: log in again, on GKE with `gcloud auth login`",
    ),
    (
        "another operation .* in progress",
        "wait for the other Helm; where it was killed, `helm rollback RELEASE` ends its operation",
    ),
    (
        r'resource "(cluster)?role(binding)?s"',
        "ask for the role admin in the namespace; where the chart seedbed-platform is installed, "
        "--set rbac.create=false makes no role",
    ),
    (
        "forbidden",
        "the account may not do this in the namespace: choose another --namespace, or ask for the "
        "role admin there",
    ),
    (
        "no matches for kind",
        "the cluster lacks that kind of object: install what brings it, or switch the value off "
        "that asks for it",
    ),
    ("docker daemon|podman.*socket", "start Docker, or install Podman"),
    (
        "denied|unauthorized|authentication required|no basic auth",
        "log in to the registry: `docker login REGISTRY`, or on Google's `gcloud auth "
        "configure-docker HOST`",
    ),
)


# Longest silence of a program whose output is piped: its connection is taken for dead.
_SILENCE_S = 300.0
# From the end of what is read of its output to its own end.
_END_S = 10.0


def run(*command: str, shown: bool = False, to_stdout: bool = False, stdin: str = "") -> str:
    """Run a program, and return what it writes to stdout.

    Args:
        command: The program and its arguments.
        shown: Its lines go to stderr, and nothing is returned.
        to_stdout: Its stdout is this process's, and nothing is returned.
        stdin: What it reads.

    Raises:
        SeedbedError: CONFIG, the chart refuses the values; RESUME_REFUSED, the run of the release
            has begun with other settings; DEPLOY, the program is missing or fails.
    """
    stdout = None if to_stdout else sys.stderr if shown else subprocess.PIPE
    done = attempt(*command, stdin=stdin, stdout=stdout)
    if shown:
        sys.stderr.write(done.stderr)
    if done.returncode == 0:
        return done.stdout or ""
    raise _failure(command, done.returncode, done.stderr)


def attempt(
    *command: str, stdin: str = "", stdout: int | TextIO | None = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run a program, and return how it ended, also where it failed.

    Args:
        command: The program and its arguments.
        stdin: What it reads.
        stdout: As of `subprocess.run`.

    Raises:
        SeedbedError: DEPLOY, the program is missing.
    """
    try:
        return subprocess.run(
            command,
            input=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
    except FileNotFoundError as error:
        raise _missing(command[0]) from error


def has_namespace(name: str) -> bool:
    """Return whether the cluster has a namespace; one that may not be read is taken to be there.

    Raises:
        SeedbedError: DEPLOY, kubectl is missing.
    """
    return "NotFound" not in attempt("kubectl", "get", "namespace", name).stderr


class Piped:
    """Stdout of a program that runs, as lines and as bytes."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor, self._name, self._rest = descriptor, name, b""

    def line(self) -> bytes:
        """Return the next line without its end; b"" at the end of the output.

        Raises:
            SeedbedError: DEPLOY, nothing came for `_SILENCE_S`.
        """
        while b"\n" not in self._rest:
            if not (more := self._read()):
                self._rest = b""  # half a line is none
                return b""
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def take(self, size: int) -> Iterator[bytes]:
        """Yield the next bytes in parts; fewer than asked where the output ends.

        Raises:
            SeedbedError: As `line`.
        """
        while size:
            if not (chunk := self._rest or self._read()):
                return
            part, self._rest = chunk[:size], chunk[size:]
            size -= len(part)
            yield part

    def _read(self) -> bytes:
        if not select.select([self._descriptor], [], [], _SILENCE_S)[0]:
            raise SeedbedError(
                ExitCode.DEPLOY, f"{self._name} has sent nothing for {_SILENCE_S:g} s"
            )
        return os.read(self._descriptor, 1 << 20)


@contextmanager
def piped(*command: str, stdin: bytes) -> Iterator[Piped]:
    """Run a program, and yield what it writes to stdout while it runs; end it with the block.

    Args:
        command: The program and its arguments.
        stdin: What it reads.

    Raises:
        SeedbedError: DEPLOY, the program is missing, or fails and the block has not.
    """
    with tempfile.TemporaryFile("w+") as errors:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                env=dict(os.environ),
            )  # fmt: skip
        except FileNotFoundError as error:
            raise _missing(command[0]) from error
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(stdin)
                process.stdin.close()
            yield Piped(process.stdout.fileno(), " ".join(command[:2]))
        except BaseException:
            process.kill()
            raise
        finally:
            process.stdout.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
            process.kill()
            process.wait()
        if process.returncode:
            errors.seek(0)
            raise _failure(command, process.returncode, errors.read())


def _missing(name: str) -> SeedbedError:
    how = _INSTALL.get(name, "install it")
    return SeedbedError(ExitCode.DEPLOY, f"{name} is not in PATH: {how}")


def _failure(command: tuple[str, ...], code: int, written: str) -> SeedbedError:
    # The chart's own sentences, and those of its schema.
    if refused := re.search(r"execution error at \([^)]*\): ((?:.+\n?)+)", written):
        message = refused[1].strip()
        if message.startswith("resume refused: "):
            return SeedbedError(ExitCode.RESUME_REFUSED, message)
        return ConfigError(message)
    if "values don't meet the specifications" in written:
        lines = [
            line.strip(" -") for line in written.splitlines() if "- at '" in line or ": " in line
        ]
        wrong = "; ".join(line for line in lines if not line.startswith("Error:"))
        return ConfigError(f"values that the chart does not take: {wrong or written.strip()}")
    if refused := re.search(r'release name "?.*', written):
        return ConfigError(
            f"{refused[0]}: give --release NAME, of at most {NAME_LETTERS} small letters, digits "
            "and hyphens"
        )
    advice = next((how for cause, how in _ADVICE if re.search(cause, written, re.IGNORECASE)), "")
    lines = [line for line in written.splitlines() if line.strip() and _HINT not in line]
    last = lines[-1].removeprefix("Error: ") if lines else "without a word"
    # Of a template that calls others, what the innermost one met.
    last = last.rpartition("error calling lookup: ")[2]
    namespaces = [word for word in command if word.startswith("--namespace=")]
    by_hand = " ".join(["kubectl", *namespaces, "get pods,events"])
    if not any(word.startswith("--values=") for word in command):  # files that are gone by then
        by_hand = " ".join(command)
    advice = advice or f"`{by_hand}` may show more"
    return SeedbedError(
        ExitCode.DEPLOY, f"{' '.join(command[:2])} failed with exit code {code}: {last}; {advice}"
    )
