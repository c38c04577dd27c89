"""Problems of a storm, each of which is said when it is found."""

from __future__ import annotations

import sys
import time

SAID = "storm: problem after"
_began = time.monotonic()


class Problems(list[str]):
    """A list that says each text on stderr, with the seconds since the start."""

    def append(self, text: str, /) -> None:
        super().append(text)
        print(f"{SAID} {time.monotonic() - _began:.1f} s: {text}", file=sys.stderr, flush=True)

    def say(self, texts: list[str]) -> None:
        """Append some texts."""
        for text in texts:
            self.append(text)
