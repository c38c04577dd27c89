"""The time since a release has last done anything: `stop.idle_s`."""

from collections.abc import Mapping

from seedbed.runtime.text import counted


class IdleClock:
    """Time without a frame, while a learner occupies a node.

    A learner that does not answer is idle only if there is no actor either: what goes on is then
    not known.
    """

    def __init__(self, idle_s: float) -> None:
        """Wait for the first look.

        Args:
            idle_s: `stop.idle_s`; 0 is none.
        """
        self._idle_s = idle_s
        self._frames = -1
        self._busy_at: float | None = None

    def reason(
        self, clock: float, frames: int, answered: bool, pods: Mapping[str, int]
    ) -> str | None:
        """Return why the release is to be paused, with both numbers, or None.

        Args:
            clock: Time of the monotonic clock, in seconds.
            frames: Frames of all learners, as last known.
            answered: Whether any learner has answered now.
            pods: Pods on nodes, by component.
        """
        unknown = not answered and pods.get("actor", 0) > 0
        if self._busy_at is None or frames != self._frames or unknown:
            self._busy_at, self._frames = clock, frames
        idle_s = clock - self._busy_at
        if not pods.get("learner"):
            self._busy_at = None  # the next learner has the whole time
            return None
        if not self._idle_s or idle_s < self._idle_s:
            return None
        return (
            f"stop.idle_s: no frame for {idle_s:.0f} s of {self._idle_s:g}, with "
            f"{counted(pods.get('actor', 0), 'actor')}"
        )
