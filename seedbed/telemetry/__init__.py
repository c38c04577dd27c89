"""Statistics of a learner: counted by its parts, measured, shown and written."""

from seedbed.telemetry.busy import BusyClock
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.telemetry import Telemetry

__all__ = ["BusyClock", "Counters", "Telemetry"]
