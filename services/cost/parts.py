"""One part of a round that is made again and again: a failure is counted, and the others go on."""

import logging
from collections import Counter
from collections.abc import Callable

log = logging.getLogger(__name__)

_LETTERS = 300  # of an error


def succeeds(part: str, call: Callable[[], object], errors: Counter[str], again_s: float) -> bool:
    """Return whether a call goes well; count and log its failure otherwise.

    Args:
        part: Name of the part, under which it counts.
        call: The call.
        errors: Failures by part, to which one is added.
        again_s: When it is made again, in seconds.
    """
    try:
        call()
    except Exception as error:
        errors[part] += 1
        log.warning(
            "%s: %s: %s; tried again in %g s",
            part,
            type(error).__name__,
            " ".join(str(error).split())[:_LETTERS],
            again_s,
        )
        return False
    return True
