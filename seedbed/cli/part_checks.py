"""Checks of the parts of Seedbed: the backends, the environments.

Backends and environments are tried in processes of their own, because one that hangs or crashes is
a finding, and because the check itself imports none of them.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from seedbed.config import Experiment
from seedbed.config.environment import Environment
from seedbed.runtime.exit_codes import ExitCode
from seedbed.runtime.findings import Finding
from seedbed.runtime.install import how_to_install
from seedbed.runtime.limits import usable_cpus
from seedbed.runtime.text import counted

# A first import of TensorFlow from a cold disk takes most of a minute.
_PROCESS_S = 120.0
_SLOW = "slow"  # in place of an error

_BACKENDS = {
    "tensorflow": (
        "import json, keras, tensorflow as tf\n"
        "float(tf.reduce_sum(tf.ones((2, 2)) @ tf.ones((2, 2))))\n"
        "devices = sorted({d.device_type.lower() for d in tf.config.list_physical_devices()})\n"
        "print(json.dumps([tf.__version__, keras.__version__, devices]))"
    ),
    "jax": (
        "import json, keras, jax, jax.numpy as jnp\n"
        "float((jnp.ones((2, 2)) @ jnp.ones((2, 2))).sum())\n"
        "devices = sorted({d.platform for d in jax.devices()})\n"
        "print(json.dumps([jax.__version__, keras.__version__, devices]))"
    ),
}

_ENVIRONMENT = (
    "import json, sys, numpy as np\n"
    "from seedbed.envs.registry import make_vector_env\n"
    "from seedbed.config.environment import Environment\n"
    "from seedbed.packed import random_actions\n"
    "from seedbed.runtime.exit_codes import SeedbedError\n"
    "try:\n"
    "    group = make_vector_env(Environment.model_validate_json(sys.argv[1]), 1, 1, [1])\n"
    "except SeedbedError as error:\n"
    "    sys.exit(str(error))\n"
    "spec, seen = group.spec, group.reset().observation\n"
    "group.step(random_actions(spec, seen, np.random.default_rng(0)))\n"
    "group.close()\n"
    "print(json.dumps([str(spec.observation), str(spec.action)]))"
)


def backends(experiment: Experiment | None) -> Iterator[Finding]:
    """Check versions and devices of both; the experiment's backend must have its device."""
    wanted = experiment.learner.backend if experiment is not None else None
    wanted_device = experiment.learner.device if experiment is not None else "auto"
    # One after the other: each takes all cores to start.
    tried = {name: _try_backend(name) for name in _BACKENDS}
    for name, (result, error) in tried.items():
        if error == _SLOW:
            advice = "try again when the machine has less load; a run waits for its backend"
            yield Finding("warn", f"{name} is slow: {_slowness()}", advice)
        elif result is not None:
            version, keras_version, devices = result
            message = f"{name} {version} with Keras {keras_version}, on {', '.join(devices)}"
            if name == wanted and wanted_device not in ("auto", *devices):
                message += f"; learner.device is {wanted_device!r}"
                advice = "set learner.device to auto, or install the driver and the right wheel"
                yield Finding("fail", message, advice, ExitCode.BACKEND)
            else:
                yield Finding("ok", message)
        elif name == wanted:
            advice = f"{how_to_install(name)}; or set learner.backend"
            message = f"{name} (learner.backend) does not start: {error}"
            yield Finding("fail", message, advice, ExitCode.BACKEND)
        elif "No module named" in error:
            yield Finding("ok", f"{name} is not installed")
        else:
            advice = f"reinstall it; only experiments with learner.backend={name} need it"
            yield Finding("warn", f"{name} does not start: {error}", advice)
    if wanted is None and not any(result or error == _SLOW for result, error in tried.values()):
        message = "no backend: only actors can run on this machine"
        yield Finding("warn", message, how_to_install("tensorflow"))


def _slowness() -> str:
    return (
        f"it has not started within {_PROCESS_S:g} s, at a load of {os.getloadavg()[0]:.1f} on "
        f"{counted(f'{usable_cpus():g}', 'core')}"
    )


def _try_backend(name: str) -> tuple[Any | None, str]:
    if importlib.util.find_spec(name) is None:
        return None, f"No module named {name!r}"
    return _json_of(_BACKENDS[name], KERAS_BACKEND=name, TF_CPP_MIN_LOG_LEVEL="3")


def environments(experiment: Experiment | None) -> Iterator[Finding]:
    """Reset and step the experiment's environment, else one of each usual kind."""
    level: Literal["warn", "fail"] = "warn"
    settings = [Environment(id=name) for name in ("atari:Pong", "CartPole-v1")]
    if experiment is not None:
        level, settings = "fail", [experiment.environment]
    trees = [environment.model_dump_json() for environment in settings]
    with ThreadPoolExecutor(len(trees)) as pool:
        results = list(pool.map(lambda tree: _json_of(_ENVIRONMENT, tree), trees))
    for environment, (result, error) in zip(settings, results, strict=True):
        if result is not None:
            observation, actions = result
            message = f"{environment.id} steps: observations {observation}, {actions}"
            yield Finding("ok", message)
        else:
            message = f"{environment.id} does not step: {error}"
            if error == _SLOW:
                message = f"{environment.id} is slow: {_slowness()}"
            advice = f"run `seedbed check env` on it; Atari needs {how_to_install('actor')}"
            found = "warn" if error == _SLOW else level
            yield Finding(found, message, advice, ExitCode.ENVIRONMENT)


def _json_of(code: str, *arguments: str, **environment: str) -> tuple[Any | None, str]:
    """Run code in a process of its own; return its last line as JSON, else None and the cause."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=_PROCESS_S,
        )
    except subprocess.TimeoutExpired:
        return None, _SLOW
    if done.returncode < 0:
        return None, f"its process was killed by signal {-done.returncode}"
    last = (done.stderr if done.returncode else done.stdout).strip().splitlines()[-1:]
    if done.returncode or not last:
        return None, last[0] if last else f"exit code {done.returncode}"
    return json.loads(last[0]), ""
