"""Optional packages: which backends are installed, and words for what is missing."""

import sys
from importlib.metadata import version
from importlib.util import find_spec


def installed_backends() -> list[str]:
    """Return the values of `learner.backend` that are installed, without importing any.

    TensorFlow is the first.
    """
    found = {name: find_spec(name) for name in ("tensorflow", "jax")}
    # A folder of that name, without a package in it, has no origin.
    return [name for name, spec in found.items() if spec is not None and spec.origin]


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of Seedbed into this Python.

    Args:
        extra: as in `pyproject.toml`, such as `plots`.
    """
    wheel = f"seedbed-{version('seedbed')}-py3-none-any.whl"
    return (
        f"{sys.executable} -m pip install '.[{extra}]' in a checkout of Seedbed, or "
        f"'{wheel}[{extra}]' of a release"
    )
