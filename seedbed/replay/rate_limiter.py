"""Holds the replay ratio: trained steps for every step that is inserted."""

from __future__ import annotations

from seedbed.config.learner import Replay
from seedbed.replay.sequence import SequenceSpec


class RateLimiter:
    """Says when to train and when to take in more. Counts steps; never waits. Not thread-safe.

    Credit is what training may still use: `ratio * inserted - trained`, counted from the moment
    when the replay is filled to its minimum. Training waits for the credit of one batch; taking in
    waits while there is the credit of more than `ahead` batches. One of the two can always go on,
    since `ahead` is at least 1.

    Args:
        ratio: trained steps an inserted one. 0 never trains, and never holds up insertion.
        batch_steps: steps that one batch trains.
        minimum: sequences before the first batch.
        ahead: batches.
    """

    def __init__(self, ratio: float, batch_steps: int, minimum: int, ahead: float) -> None:
        if ahead < 1:
            raise ValueError(
                f"ahead {ahead} must be at least 1: insertion would wait for training, and "
                "training for insertion"
            )
        self.ratio = ratio
        self.batch_steps = batch_steps
        self.minimum = minimum
        self.ahead = ahead
        self.filled = False  # once the minimum was there
        self._credit = 0.0

    @property
    def credit(self) -> float:
        """Steps that may be trained."""
        return self._credit

    def may_train(self) -> bool:
        """Whether a batch is due."""
        return self.filled and self._credit >= self.batch_steps

    def may_insert(self) -> bool:
        """Whether a block may come in."""
        return not self.filled or self._credit <= self.ahead * self.batch_steps

    def filling(self, sampleable: int) -> str | None:
        """How far the replay is, in words, until it is filled to its minimum."""
        if self.filled:
            return None
        return f"replay holds {sampleable:,} of the {self.minimum:,} sequences to begin with"

    def emptied(self) -> None:
        """The replay has lost what it had."""
        self.filled, self._credit = False, 0.0

    def inserted(self, steps: int, sampleable: int) -> None:
        """`steps` have come in, and `sampleable` sequences can be drawn now."""
        if self.filled:
            self._credit += self.ratio * steps
        elif sampleable >= self.minimum:
            # The first batch at once: the ratio counts from here.
            self.filled, self._credit = True, float(self.batch_steps if self.ratio else 0)

    def trained(self) -> None:
        """One batch was trained on."""
        self._credit -= self.batch_steps


def rate_limiter(settings: Replay, batch_size: int, spec: SequenceSpec) -> RateLimiter:
    """Of `learner.replay`: counts the steps that train, not those that warm up a state."""
    return RateLimiter(
        settings.ratio, batch_size * spec.steps, settings.min_size, settings.ratio_tolerance_batches
    )


def updates_per_second(
    frames_per_second: float, action_repeat: int, ratio: float, batch_size: int, steps: int
) -> float:
    """The rate of updates that a replay ratio gives at a frame rate."""
    return frames_per_second / action_repeat * ratio / (batch_size * steps)
