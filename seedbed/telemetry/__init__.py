"""Counting, measuring and showing what a learner does."""

from seedbed.telemetry.busy import BusyClock
from seedbed.telemetry.counters import Counters
from seedbed.telemetry.telemetry import Telemetry

__all__ = ["BusyClock", "Counters", "Telemetry"]
