"""Rate limiter that holds the replay ratio: trained steps for each inserted step."""

from __future__ import annotations

from seedbed.config.learner import Replay
from seedbed.replay.sequence import SequenceSpec


class RateLimiter:
    """Decision when to train and when to insert. Counts steps and never waits. Not thread-safe.

    Credit is the number of steps that training may still use: `ratio * inserted - trained`,
    counted from the moment when the replay first holds `minimum` sequences. Training waits for
    the credit of one batch. Insertion waits while the credit is more than `ahead` batches. One of
    the two can always go on, because `ahead` is at least 1. In Reverb's terms, credit is the
    error, `ahead` batches are the error buffer and `minimum` is `min_size_to_sample`.

    Args:
        ratio: Trained steps for each inserted step. 0 never trains and never blocks insertion.
        batch_steps: Steps that one batch trains.
        minimum: Sequences that can be sampled before the first batch.
        ahead: Batches that insertion may be ahead of training, at least 1.

    Raises:
        ValueError: `ahead` is below 1.
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
        # True once the replay has held `minimum` sequences.
        self.is_warm = False
        self.credit = 0.0

    def may_train(self) -> bool:
        """Return whether a batch is due."""
        return self.is_warm and self.credit >= self.batch_steps

    def may_insert(self) -> bool:
        """Return whether a chunk may be inserted."""
        return not self.is_warm or self.credit <= self.ahead * self.batch_steps

    def warm_up_progress(self, sampleable: int) -> str | None:
        """Describe how full the replay is until training may begin; None after that.

        Args:
            sampleable: Sequences that can be sampled.
        """
        if self.is_warm:
            return None
        return f"replay holds {sampleable:,} of the {self.minimum:,} sequences to begin with"

    def reset(self) -> None:
        """Wait for `minimum` sequences again, because the replay has lost its contents."""
        self.is_warm, self.credit = False, 0.0

    def on_insert(self, steps: int, sampleable: int) -> None:
        """Count inserted steps.

        Args:
            steps: Steps that were inserted.
            sampleable: Sequences that can be sampled now.
        """
        if self.is_warm:
            self.credit += self.ratio * steps
        elif sampleable >= self.minimum:
            # The first batch is due at once: the ratio counts from here.
            self.is_warm, self.credit = True, float(self.batch_steps if self.ratio else 0)

    def on_train(self) -> None:
        """Count one batch as trained."""
        self.credit -= self.batch_steps


def make_rate_limiter(settings: Replay, batch_size: int, spec: SequenceSpec) -> RateLimiter:
    """Build the limiter of `learner.replay`. Counts trained steps; burn-in steps are excluded.

    Args:
        settings: The section `learner.replay`.
        batch_size: Sequences in a batch.
        spec: Sizes of a sequence.
    """
    return RateLimiter(
        settings.ratio, batch_size * spec.steps, settings.min_size, settings.ratio_tolerance_batches
    )
