"""What is counted from the experiment's first frame, over all restarts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class Counters:
    """Totals of the experiment. A checkpoint keeps them; a restarted learner counts on.

    Frames are emulator frames (steps times action repeat), counted on the learner. Each field is
    written by one thread only, so plain `+=` is enough.
    """

    env_frames: int = 0  # arrived from actors
    trained_frames: int = 0  # were in a training batch; from replay, each time
    inserted_frames: int = 0  # went into replay
    discarded_frames: int = 0  # will never be: cut blocks, and what was queued at a restart
    updates: int = 0  # of the parameters
    episodes: int = 0  # that ended
    abandoned_episodes: int = 0  # cut by a disconnect or a restart; never reported as returns
    seconds: float = 0.0  # wall time while a learner ran
    dollars: float = 0.0  # US dollars in that time

    def to_json(self) -> dict[str, int | float]:
        """As a checkpoint keeps it."""
        return asdict(self)

    def set_from(self, saved: Mapping[str, Any]) -> None:
        """Take over `to_json`'s numbers, in place. Fields that are not there keep their value."""
        for field in fields(self):
            if field.name in saved:
                kind = float if field.name in ("seconds", "dollars") else int
                setattr(self, field.name, kind(saved[field.name]))
