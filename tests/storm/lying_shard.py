"""`seedbed replay` of a hostile process: some of the sequences in its answers are not allowed.

`python -m tests.storm.lying_shard replay ARGUMENTS`
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import numpy as np

from seedbed.cli.main import main
from seedbed.services.replay import shard

# In each so many seconds, the last ones in which every answer lies.
PERIOD_S, LIES_S = 10.0, 3.0
_chance = random.Random(0)
_reply = shard.sample_reply
_LIES: tuple[tuple[str, float], ...] = (
    ("reward", np.nan),
    ("reward", 3e38),
    ("flags", 255),
    ("action", 2**31 - 1),
    ("previous_action", -(2**31)),
    ("state", np.inf),
    ("version", np.nan),
    ("age", np.nan),
    ("key", -1),
    ("scaled_priority", np.nan),
    ("scaled_priority", 1e300),
)


def reply(spec: Any, message: Any, fields: dict[str, Any], frames: Any) -> list[Any]:
    """Serialize sequences that were drawn, one of whose arrays is another at times."""
    if time.monotonic() % PERIOD_S > PERIOD_S - LIES_S:
        name, value = _chance.choice(_LIES)
        fields = {**fields, name: np.full_like(fields[name], value)}
    return _reply(spec, message, fields, frames)


if __name__ == "__main__":
    shard.sample_reply = reply
    sys.exit(main())
