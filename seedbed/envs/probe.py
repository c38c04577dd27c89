"""Probe of an environment: a process of its own makes, resets and steps it once.

An environment may need packages that the learner does not have, take long, or end its process.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from seedbed.config.environment import Environment
from seedbed.packed import random_actions, read_environment_spec
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.signals import exit_with_starting_thread
from seedbed.spec import EnvironmentSpec

# Longest time for an environment to be made.
DEADLINE_S = 60.0
_POLL_S = 0.05


class EnvironmentProbe:
    """Process that tries an environment and reads the spec, begun at once.

    The process ends with the thread that begins it.

    Args:
        environment: the experiment's section.

    Attributes:
        failure: why `wait` has returned no spec.
        refused: the environment cannot be made, or its first steps failed, in a way that Seedbed
            explains.
    """

    def __init__(self, environment: Environment) -> None:
        self._name = environment.id
        self._deadline = time.monotonic() + DEADLINE_S
        self.failure, self.refused = "", False
        self._spec: EnvironmentSpec | None = None
        self._process: subprocess.Popen[str] | None = subprocess.Popen(
            [sys.executable, "-m", __name__, str(os.getpid()), environment.model_dump_json()],
            env=dict(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,  # Ctrl-C is the learner's
        )

    def wait(
        self, is_stopping: Callable[[], bool] = lambda: False, timeout_s: float = math.inf
    ) -> EnvironmentSpec | None:
        """Return the spec; None if the environment cannot be made here, or not in time.

        Args:
            is_stopping: whether to give up.
            timeout_s: seconds after which the probe goes on, and this call ends.
        """
        until = time.monotonic() + timeout_s
        while (process := self._process) is not None:
            try:
                out, errors = process.communicate(timeout=_POLL_S)
                self._take(process.returncode, out, errors)
                self._process = None
            except subprocess.TimeoutExpired:
                if is_stopping() or time.monotonic() > self._deadline:
                    process.kill()
                    process.communicate()
                    self._process = None
                    late = time.monotonic() > self._deadline
                    self.failure = f"it was not made within {DEADLINE_S:g} s" if late else "stopped"
                elif time.monotonic() > until:
                    break
        return self._spec

    def _take(self, code: int, out: str, errors: str) -> None:
        try:
            self._spec = read_environment_spec(json.loads(out.splitlines()[-1]))
        except (IndexError, ValueError, KeyError, TypeError):
            lines = errors.strip().splitlines() or [f"exit code {code}"]
            self.failure, self.refused = lines[-1][:1000], code == ExitCode.ENVIRONMENT


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

    try:
        env = make_vector_env(environment, 1, 1, [0], max_failures=1)
        first = env.reset()
        env.step(random_actions(env.spec, first.observation, np.random.default_rng(0)))
    except SeedbedError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(ExitCode.ENVIRONMENT)
    print("\n" + json.dumps(env.spec.to_json()), flush=True)
    # Threads of the environment keep no learner waiting.
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), Environment.model_validate_json(sys.argv[2]))
