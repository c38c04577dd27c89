"""Words for an optional package that is missing."""

import sys
from importlib.metadata import version


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
