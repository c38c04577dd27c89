"""The two backends. Call `use` once, before Keras is imported."""

import os
import sys

from seedbed.backends.coordination import HostPlace
from seedbed.backends.missing_device import why_missing
from seedbed.backends.protocol import Backend
from seedbed.backends.roles import Split
from seedbed.runtime.collector import suspended_collector
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.install import how_to_install, installed_backends
from seedbed.runtime.terminal import spared

_current: Backend | None = None


def use(
    name: str,
    deterministic: bool = False,
    device: str = "auto",
    place: HostPlace | None = None,
    precision: str = "float32",
    split: Split | None = None,
    operation_threads: int = 0,
) -> Backend:
    """Fix this process's backend, which Keras cannot change later.

    Args:
        name: `tensorflow` or `jax`.
        deterministic: compute the same results for the same inputs, slower.
        device: `learner.device`: `cpu`, `gpu` or `tpu`, which must exist, or `auto`, the best.
        place: where this host meets the other hosts of its learner, which are waited for here (JAX
            only); None of one host.
        precision: `learner.precision`. Only `tensorfloat32` is the backend's, the networks see to
            the others.
        split: `learner.devices`: how many devices act, and how many train (JAX only); None where
            one device does both.
        operation_threads: threads of one operation on the CPU (TensorFlow only); 0 is all cores.

    Raises:
        SeedbedError: BACKEND: not installed, another one is fixed already, or no such device.
    """
    global _current
    if _current is not None:
        if _current.name != name:
            raise SeedbedError(
                ExitCode.BACKEND,
                f"learner.backend is {name!r}, but this process already runs {_current.name!r}: "
                "Keras fixes its backend once a process; start another process",
            )
        return _current
    keras = sys.modules.get("keras")
    if keras is not None and keras.backend.backend() != name:
        raise SeedbedError(
            ExitCode.BACKEND,
            f"Keras runs {keras.backend.backend()!r} in this process already, and "
            f"learner.backend is {name!r}: set KERAS_BACKEND={name} before Keras is imported",
        )
    os.environ["KERAS_BACKEND"] = name
    with spared():
        try:
            if name == "tensorflow":
                with suspended_collector():
                    from seedbed.backends.tensorflow import TensorFlowBackend

                _current = TensorFlowBackend(deterministic, device, precision, operation_threads)
            else:
                with suspended_collector():
                    from seedbed.backends.jax import JaxBackend

                _current = JaxBackend(deterministic, device, place, precision, split)
        except ImportError as error:
            raise SeedbedError(ExitCode.BACKEND, f"{_missing(name)} ({error})") from error
        _check_device(_current, device)
        _check_precision(_current, precision)
    return _current


def _missing(name: str) -> str:
    """Say what to do where the backend `name` cannot be imported."""
    installed = installed_backends()
    if name in installed:
        return f"learner.backend {name!r} does not start; reinstall it: {how_to_install(name)}"
    if not installed:
        return (
            f"no backend is installed here: {how_to_install('tensorflow')}; or with jax in the "
            "place of tensorflow"
        )
    return (
        f"learner.backend {name!r} is not installed here, and {installed[0]!r} is: "
        f"{how_to_install(name)}; or set learner.backend={installed[0]}"
    )


def _check_device(backend: Backend, device: str) -> None:
    try:
        found = backend.devices()
    except RuntimeError as error:  # JAX, if the platform is missing
        found, cause = [], f" ({error})"
    else:
        cause = ""
    if not found or (device != "auto" and not found[0].startswith(device)):
        raise SeedbedError(
            ExitCode.BACKEND,
            f"learner.device is {device!r}, but {backend.name} has {found or 'no device'} here"
            f"{cause}; {why_missing(device) or 'choose another one, or `auto`'}",
        )


def _check_precision(backend: Backend, precision: str) -> None:
    found = backend.devices()
    if precision == "tensorfloat32" and not found[0].startswith("gpu"):
        raise SeedbedError(
            ExitCode.BACKEND,
            f"learner.precision is {precision!r}, a format of NVIDIA GPUs, but {backend.name} has "
            f"{found} here: choose float32, or bfloat16",
        )


def current() -> Backend:
    """Return the backend that `use` has fixed."""
    if _current is None:
        raise RuntimeError("call seedbed.backends.use() first")
    return _current
