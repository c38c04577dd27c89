"""What lasts is logged less often the longer it lasts."""

import re


class Lasting:
    """Decides which lines about something that lasts are worth a line.

    A new cause is, and a known one each time that it has all lasted twice as long.
    """

    def __init__(self) -> None:
        self._due_s = 0.0
        self._causes = set[str]()

    def end(self) -> None:
        """Begin anew: it is over."""
        self._due_s = 0.0
        self._causes.clear()

    @property
    def is_known(self) -> bool:
        """Whether a line has been due since the last end."""
        return bool(self._causes)

    def is_due(self, cause: str, lasted_s: float) -> bool:
        """Return whether to log a line.

        Args:
            cause: In words; its numbers do not make it another one.
            lasted_s: Seconds for which it has lasted, whatever the causes.
        """
        words = re.sub(r"\d+", "", cause)
        if lasted_s < self._due_s and words in self._causes:
            return False
        self._due_s = max(self._due_s, 2 * lasted_s)
        self._causes.add(words)
        return True
