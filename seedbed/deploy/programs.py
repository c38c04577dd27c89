"""Programs that `seedbed deploy` calls. A failure of one is a sentence that says what to do."""

import os
import re
import subprocess
import sys

from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError

_INSTALL = {
    "helm": "install Helm 3 or 4 (https://helm.sh/docs/intro/install)",
    "kubectl": "install kubectl (https://kubernetes.io/docs/tasks/tools)",
    "docker": "install Docker or Podman, or leave --registry out for images that are there already",
}
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


def run(*command: str, shown: bool = False) -> str:
    """Run a program, and return what it writes to stdout.

    Args:
        command: The program and its arguments.
        shown: Its lines go to the terminal, and nothing is returned.

    Raises:
        SeedbedError: CONFIG, the chart refuses the values; RESUME_REFUSED, the run of the release
            has begun with other settings; DEPLOY, the program is missing or fails.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if shown else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
    except FileNotFoundError as error:
        name = command[0]
        how = _INSTALL.get(name, "install it")
        raise SeedbedError(ExitCode.DEPLOY, f"{name} is not in PATH: {how}") from error
    if shown:
        sys.stderr.write(done.stderr)
    if done.returncode == 0:
        return done.stdout or ""
    raise _failure(command, done.returncode, done.stderr)


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
            f"{refused[0]}: give --release NAME, of small letters, digits and hyphens"
        )
    advice = next((how for cause, how in _ADVICE if re.search(cause, written, re.IGNORECASE)), "")
    lines = [line for line in written.splitlines() if line.strip()]
    last = lines[-1].removeprefix("Error: ") if lines else "without a word"
    namespaces = [word for word in command if word.startswith("--namespace=")]
    by_hand = " ".join(["kubectl", *namespaces, "get pods,events"])
    if not any(word.startswith("--values=") for word in command):  # files that are gone by then
        by_hand = " ".join(command)
    advice = advice or f"`{by_hand}` may show more"
    return SeedbedError(
        ExitCode.DEPLOY, f"{' '.join(command[:2])} failed with exit code {code}: {last}; {advice}"
    )
