"""Environments of DeepMind Lab over the package that stands for it (`fake_lab`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seedbed.config.environment import Environment

FOLDER = Path(__file__).parent / "fake_lab"
LEVEL = "explore_goal_locations_small"


@contextmanager
def fake_lab() -> Iterator[Any]:
    """The package `deepmind_lab`, which workers find, too."""
    sys.path.insert(0, str(FOLDER))
    before = sys.modules.pop("deepmind_lab", None)
    try:
        import deepmind_lab  # type: ignore[import-not-found]

        deepmind_lab.Lab.made.clear()
        yield deepmind_lab
    finally:
        sys.path.remove(str(FOLDER))
        sys.modules.pop("deepmind_lab", None)
        if before is not None:
            sys.modules["deepmind_lab"] = before


def lab(level: str = LEVEL, **settings: Any) -> Environment:
    """The section of a level."""
    return Environment.model_validate({"id": f"lab:{level}", "lab": settings})
