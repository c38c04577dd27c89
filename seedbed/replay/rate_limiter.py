"""Rate limiter that holds the replay ratio: trained steps for each inserted step."""

from seedbed.config.learner import Replay


class RateLimiter:
    """Decision when to train and when to insert. Counts steps and never waits. Not thread-safe.

    Credit is the number of steps that training may still use: `ratio * inserted - trained`,
    counted from the moment when `min_size` sequences can first be sampled. Training waits for the
    credit of one batch. Insertion waits while the credit is more than `ratio_tolerance_batches`
    batches. One of the two can always go on, because the settings keep that number at 1 or above.
    Counts trained steps; burn-in steps are excluded. In Reverb's terms, credit is the error,
    `ratio_tolerance_batches` batches are the error buffer and `min_size` is `min_size_to_sample`.
    """

    def __init__(self, settings: Replay, batch_steps: int) -> None:
        self.ratio = settings.ratio
        self.batch_steps = batch_steps
        self.min_size = settings.min_size
        self.tolerance_steps = settings.ratio_tolerance_batches * batch_steps
        # True once the replay has held `min_size` sequences.
        self.is_warm = False
        self.credit = 0.0

    def may_train(self) -> bool:
        """Return whether a batch is due."""
        return self.is_warm and self.credit >= self.batch_steps

    def may_insert(self) -> bool:
        """Return whether a chunk may be inserted."""
        return not self.is_warm or self.credit <= self.tolerance_steps

    def warm_up_progress(self, sampleable: int) -> str | None:
        """Describe how full the replay is until training may begin; None after that."""
        if self.is_warm:
            return None
        return f"replay holds {sampleable:,} of the {self.min_size:,} sequences to begin with"

    def reset(self) -> None:
        """Wait for `min_size` sequences again, because the replay has lost its contents."""
        self.is_warm, self.credit = False, 0.0

    def on_insert(self, steps: int, sampleable: int) -> None:
        """Count inserted steps.

        Args:
            steps: Steps that were inserted.
            sampleable: Sequences that can be sampled now.
        """
        if self.is_warm:
            self.credit += self.ratio * steps
        elif sampleable >= self.min_size:
            # The first batch is due at once: the ratio counts from here.
            self.is_warm, self.credit = True, float(self.batch_steps)

    def on_train(self) -> None:
        """Count one batch as trained."""
        self.credit -= self.batch_steps
