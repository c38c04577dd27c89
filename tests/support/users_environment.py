"""The environment of a command that a user runs, for tests of what takes long."""

from __future__ import annotations

import os


def users_environment() -> dict[str, str]:
    """Without what tests/conftest.py sets, with which XLA compiles fast, but slow code."""
    return {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
