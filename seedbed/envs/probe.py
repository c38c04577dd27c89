"""Probe of an environment: a process of its own makes, resets and steps it once.

An environment may need packages that the learner does not have, take long, or end its process.
"""

import contextlib
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from tempfile import TemporaryFile

import numpy as np

from seedbed.config.environment import Environment
from seedbed.envs.watchdog import DEFAULT_S
from seedbed.packed import random_actions, read_environment_spec
from seedbed.runtime.calls import CONSTRUCTION, VARIABLE, Call, ProcessCalls, shared_memory
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.guard import leaving, run_guarded
from seedbed.runtime.signals import end_with
from seedbed.spec import EnvironmentSpec

_POLL_S = 0.05
# Longest time for it to be closed, while the run has begun.
_CLOSE_S = 10.0


class EnvironmentProbe:
    """Process that tries an environment and reads the spec, begun at once.

    The process ends with the thread that begins it.

    Args:
        environment: the experiment's section.
        timeout_s: longest time of a call into the environment; 0: no end.

    Attributes:
        failure: why `wait` has returned no spec.
        warnings: what is taken as it is and is hardly meant, in words.
        refused: the environment cannot be made, or its first steps failed, in a way that Seedbed
            explains.
    """

    def __init__(self, environment: Environment, timeout_s: float = DEFAULT_S) -> None:
        self._name = environment.id
        self._begun = time.monotonic()
        self.failure, self.refused = "", False
        self.warnings: list[str] = []
        self._spec: EnvironmentSpec | None = None
        # No pipes: a process that the environment starts may hold a pipe open.
        self._out = os.memfd_create("seedbed-spec")
        memory = shared_memory()
        self._calls = ProcessCalls(memory)
        self._errors = TemporaryFile()  # noqa: SIM115
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [
                *(sys.executable, "-m", __name__, str(os.getpid())),
                *(environment.model_dump_json(), str(self._out), str(timeout_s)),
            ],
            env={**os.environ, VARIABLE: str(memory)},
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            pass_fds=(self._out, memory),
            process_group=0,  # Ctrl-C is the learner's
        )
        os.close(memory)

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
            if self._take() or process.poll() is not None:
                # The spec may have come between the two.
                if not self._take():
                    self._fail(process.returncode)
                self._end(_CLOSE_S)
            elif is_stopping():
                self.failure = "stopped"
                self._end(0.0)
            elif time.monotonic() > until:
                break
            else:
                time.sleep(_POLL_S)
        return self._spec

    @property
    def waiting(self) -> str:
        """What the probe waits for, in words; "" while nothing takes long."""
        call = self._calls.longest or Call(CONSTRUCTION, 0, self._begun)
        return "" if self._process is None else call.waited_for(self._name)

    def _take(self) -> bool:
        """Read the spec, and return whether it is there."""
        text = os.pread(self._out, os.fstat(self._out).st_size, 0)
        if text.endswith(b"\n"):
            found = json.loads(text)
            self._spec, self.warnings = read_environment_spec(found["spec"]), found["warnings"]
        return self._spec is not None

    def _fail(self, code: int) -> None:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        causes = [line for line in lines if not line.startswith("seedbed: exit code")]
        self.failure = (causes or [f"exit code {code}"])[-1].removeprefix("seedbed: ")[:1000]
        self.refused = code == ExitCode.ENVIRONMENT

    def _end(self, timeout_s: float) -> None:
        """End the process in the background, after `timeout_s` at the latest."""
        process, self._process = self._process, None
        assert process is not None
        os.close(self._out)

        def end() -> None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout_s)
            process.kill()
            process.wait()

        if timeout_s:
            threading.Thread(target=end, name="end of the probe", daemon=True).start()
        else:
            end()


def main() -> int:
    """Write the spec to the descriptor of the command line, and close the environment."""
    environment = Environment.model_validate_json(sys.argv[2])
    out, timeout_s = int(sys.argv[3]), float(sys.argv[4])
    os.set_inheritable(out, False)
    from seedbed.envs.registry import make_vector_env

    try:
        env = make_vector_env(environment, 1, 1, [0], max_failures=1, timeout_s=timeout_s)
        first = env.reset()
        env.step(random_actions(env.spec, first.observation, np.random.default_rng(0)))
    except SeedbedError as error:
        print(error, file=sys.stderr, flush=True)
        leaving()
        os._exit(ExitCode.ENVIRONMENT)
    found = {"spec": env.spec.to_json(), "warnings": getattr(env, "warnings", [])}
    os.pwrite(out, json.dumps(found).encode() + b"\n", 0)
    env.close()
    leaving()
    # Threads of the environment keep no learner waiting.
    os._exit(ExitCode.OK)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    run_guarded(main)
