"""Probe of an environment: a process of its own makes it once, to read its sizes.

An environment may need packages that the learner does not have, take long, or end its process.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

from seedbed.config.environment import Environment
from seedbed.runtime.signals import exit_with_starting_thread
from seedbed.spec import EnvironmentSpec

# Longest time for an environment to be made.
DEADLINE_S = 60.0
_POLL_S = 0.05


class EnvironmentProbe:
    """Process that reads the spec of an environment, begun at once.

    The process ends with the thread that begins it.

    Args:
        environment: the experiment's section.

    Attributes:
        failure: why `wait` has returned no spec.
    """

    def __init__(self, environment: Environment) -> None:
        self._name = environment.id
        self._deadline = time.monotonic() + DEADLINE_S
        self.failure = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(os.getpid()), environment.model_dump_json()],
            env=dict(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def wait(self, is_stopping: Callable[[], bool]) -> EnvironmentSpec | None:
        """Return the spec; None if the environment cannot be made here, or not in time.

        Args:
            is_stopping: whether to give up.
        """
        while True:
            try:
                out, errors = self._process.communicate(timeout=_POLL_S)
                break
            except subprocess.TimeoutExpired:
                if is_stopping() or time.monotonic() > self._deadline:
                    self._process.kill()
                    self._process.communicate()
                    self.failure = f"it was not made within {DEADLINE_S:g} s"
                    return None
        try:
            return EnvironmentSpec.from_json(json.loads(out.splitlines()[-1]))
        except (IndexError, ValueError, KeyError, TypeError):
            lines = errors.strip().splitlines() or [f"exit code {self._process.returncode}"]
            self.failure = lines[-1][:500]
            return None


def main(parent: int, environment: Environment) -> None:
    """Print the spec as the last line.

    Args:
        parent: PID of the process to end with.
        environment: the experiment's section.
    """
    exit_with_starting_thread()
    if os.getppid() != parent:
        return
    from seedbed.envs.registry import make_vector_env

    print("\n" + json.dumps(make_vector_env(environment, 1, 1, [0]).spec.to_json()), flush=True)
    # Threads of the environment keep no learner waiting.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), Environment.model_validate_json(sys.argv[2]))
