"""Counters from the experiment's first frame, over all restarts."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from seedbed.runtime.metrics import Metric, counter, documented


@dataclass
class Counters:
    """Totals of the experiment. A checkpoint stores them, and a restarted learner continues them.

    Frames are emulator frames (steps times action repeat), counted on the learner. Each field is
    written by one thread only, so plain `+=` is enough.

    Attributes:
        env_frames: Emulator frames (steps times action repeat) from actors, over all restarts.
        trained_frames: Frames trained on, over all restarts; with replay, each time that they are
            drawn.
        inserted_frames: Frames inserted into replay, over all restarts; 0 for agents without
            replay.
        discarded_frames: Frames that will never be trained on, over all restarts.
        updates: Updates of the parameters, over all restarts.
        skipped_updates: Updates skipped because the loss or the gradient was not finite, over all
            restarts.
        episodes: Episodes that ended, over all restarts.
        abandoned_episodes: Episodes cut by a disconnect or a restart, over all restarts; they have
            no return.
        seconds: Seconds of training, from the first frame of each start, over all restarts.
        dollars: US dollars so far, over all restarts; with a cost meter, the meter's count.
    """

    env_frames: int = 0
    trained_frames: int = 0
    inserted_frames: int = 0
    # Frames of cut unrolls, and frames that were queued at a restart.
    discarded_frames: int = 0
    updates: int = 0
    skipped_updates: int = 0
    episodes: int = 0
    abandoned_episodes: int = 0
    seconds: float = 0.0
    dollars: float = 0.0

    METRICS: ClassVar[tuple[Metric, ...]] = documented(
        __doc__,
        counter("seedbed_env_frames_total", "env_frames", tag="speed"),
        counter("seedbed_trained_frames_total", "trained_frames"),
        counter("seedbed_inserted_frames_total", "inserted_frames"),
        counter("seedbed_discarded_frames_total", "discarded_frames"),
        counter("seedbed_updates_total", "updates"),
        counter("seedbed_updates_skipped_total", "skipped_updates"),
        counter("seedbed_episodes_total", "episodes"),
        counter("seedbed_abandoned_episodes_total", "abandoned_episodes"),
        counter("seedbed_run_seconds_total", "seconds", tag="speed"),
        counter("seedbed_run_dollars_total", "dollars", tag="speed"),
    )

    def to_json(self) -> dict[str, int | float]:
        """Return the fields, as a checkpoint stores them."""
        return asdict(self)

    def set_from(self, saved: Mapping[str, Any]) -> None:
        """Restore the output of `to_json` in place. Fields that are missing keep their value."""
        for field in fields(self):
            if field.name in saved:
                kind = float if field.name in ("seconds", "dollars") else int
                setattr(self, field.name, kind(saved[field.name]))
