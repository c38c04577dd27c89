"""Parts `gossip` and `stability` of the benchmark."""

from __future__ import annotations

from typing import Any

from bench.gossip.exchange import exchange
from bench.gossip.speed import speed, straggler
from bench.gossip.stability import stability
from bench.plan import Plan

__all__ = ["gossip", "stability"]


def gossip(plan: Plan) -> dict[str, Any]:
    """Measure the wire, speed and lost time, and the effect of a straggler."""
    return {"exchange": exchange(plan), "speed": speed(plan), "straggler": straggler(plan)}
